import assert from "node:assert/strict"
import test from "node:test"

import { alike, chosenAgain, colourOf, dashOf, middleOf, number, pathOf } from "../../../../apps/viewer/src/longhaul_viewer/components/group_shapes.mjs"

const episode = (id, ...steps) => ({ id, steps: steps.map(([anchor, action], index) => ({ index, anchor, action })) })

test("numbers have three digits, a true minus sign, and a dash for nothing", () => {
  assert.deepEqual([0.123456, -1234.5, 0, null].map((value) => number(value)), ["0.123", "−1230", "0", "–"])
  assert.deepEqual([0.5, -0.5, 0].map((value) => number(value, true)), ["+0.5", "−0.5", "0"])
})

test("episodes are alike as long as both do the same in the same state", () => {
  const one = episode("a", ["hall", "go"], ["den", "take"], ["den", "eat"])
  assert.equal(alike(one, episode("b", ["hall", "go"], ["den", "drop"])), 1)
  assert.equal(alike(one, episode("b", ["hall", "go"], ["attic", "take"])), 1)
  assert.equal(alike(one, episode("b", ["hall", "go"], ["den", "take"])), 2)
  assert.equal(alike(one, one), 3)
  assert.equal(alike(one, undefined), 0)
})

test("24 episodes have lines that differ in colour or dashes", () => {
  const lines = Array.from({ length: 24 }, (_, place) => `${colourOf(place)} ${dashOf(place)}`)
  assert.equal(new Set(lines).size, 24)
})

test("what was chosen stays chosen in another row and under another number", () => {
  const step = episode("b", ["hall", "go"], ["den", "take"])
  const nodes = [{ number: 0, anchor: null }, { number: 4, anchor: "hall" }, { number: 1, anchor: "den" }]
  const edges = [{ source: 1, target: 0 }, { source: 4, target: 1 }]
  const now = { episodes: [episode("a"), step], nodes, edges }
  assert.deepEqual(chosenAgain({ kind: "step", episode: { id: "b" }, step: { index: 1 } }, now), { kind: "step", episode: step, step: step.steps[1] })
  assert.deepEqual(chosenAgain({ kind: "state", node: { number: 1, anchor: "hall" } }, now), { kind: "state", node: nodes[1] })
  assert.deepEqual(chosenAgain({ kind: "edge", ends: [{ number: 2, anchor: "den" }, { number: 0, anchor: null }] }, now), { kind: "edge", edge: edges[0], ends: [nodes[2], nodes[0]] })
})

test("what is gone is no longer chosen, and a state of no text is not the goal", () => {
  const now = { episodes: [], nodes: [{ number: 0, anchor: null }], edges: [] }
  assert.equal(chosenAgain({ kind: "step", episode: { id: "b" }, step: { index: 1 } }, now), null)
  assert.equal(chosenAgain({ kind: "state", node: { number: 3, anchor: null } }, now), null)
  assert.equal(chosenAgain({ kind: "edge", ends: [{ number: 2, anchor: "den" }, { number: 0, anchor: null }] }, now), null)
  assert.equal(chosenAgain(null, now), null)
})

test("an edge begins and ends at its states, and its arrow points from one to the other", () => {
  const heading = (from, to, shift = 0) => {
    const path = pathOf(from, to, shift)
    const places = path.match(/-?[0-9.]+/g).map(Number)
    assert.deepEqual([...places.slice(0, 2), ...places.slice(-2)], [from.x, from.y + shift, to.x, to.y + shift])
    return middleOf(path)
  }
  assert.deepEqual(heading({ x: 0, y: 0 }, { x: 100, y: 0 }), { x: 50, y: 0, turn: 0 })
  const down = heading({ x: 0, y: 0 }, { x: 100, y: 50 }) // steeper in its middle than from end to end
  assert.deepEqual([down.x, down.y, down.turn], [50, 25, 45])
  const back = heading({ x: 100, y: 50 }, { x: 0, y: 50 }, 3)
  assert.deepEqual([back.x, Math.abs(back.turn)], [50, 180])
  assert.ok(back.y > 53) // in a bow
  assert.equal(heading({ x: 0, y: 0 }, { x: 0, y: 80 }).turn, 90)
  const loop = pathOf({ x: 50, y: 50 }, { x: 50, y: 50 }, 0)
  assert.ok(middleOf(loop).y < 44) // above the state
})
