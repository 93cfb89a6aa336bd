import assert from "node:assert/strict"
import test from "node:test"

import { number, offered } from "../../../../apps/viewer/src/longhaul_viewer/components/play_actions.mjs"

const keys = (actions) => Object.fromEntries(offered(actions, "").keys)

test("an action is pressed by its own letter, an arrow, or its place in the list", () => {
  assert.deepEqual(keys(["Up", "down", "+", "open door"]), { Up: "ArrowUp", down: "ArrowDown", "+": "+", "open door": "4" })
  assert.deepEqual(keys(["1", "wait"]), { 1: "1" }) // a digit means the action of that name
  assert.deepEqual(keys(["/"]), { "/": "1" }) // the slash begins to type
  assert.equal(keys(Array.from({ length: 12 }, (_, place) => `go to ${place}`))["go to 9"], undefined)
})

const SHELVES = Array.from({ length: 80 }, (_, place) => `take book ${place % 20} from shelf ${"abcd"[Math.floor(place / 20)]}`)

test("of many actions those are shown that hold all words that are typed", () => {
  const { shown, many, hint } = offered(SHELVES, "SHELF d 7")
  assert.deepEqual(shown, ["take book 7 from shelf d", "take book 17 from shelf d"])
  assert.ok(many)
  assert.equal(hint, "2 of 80 admissible actions")
})

test("of too many to show the hint says how many are not, and none has a key", () => {
  const { shown, keys, hint } = offered(SHELVES, "")
  assert.equal(shown.length, 60)
  assert.equal(keys.size, 0)
  assert.equal(hint, "80 actions are admissible; type to find the other 20")
})

test("of few actions all are shown whatever is typed", () => {
  const { shown, hint } = offered(["north", "south"], "xyz")
  assert.deepEqual(shown, ["north", "south"])
  assert.match(hint, /^Keys: /)
  assert.equal(offered([], "").hint, "")
})

test("rewards have four digits and a sign", () => {
  assert.deepEqual([0.5, -0.123456, 0].map((value) => number(value, true)), ["+0.5", "−0.1235", "0"])
})
