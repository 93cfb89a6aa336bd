import assert from "node:assert/strict"
import test from "node:test"

import { queryOf, stateOf } from "../../../../apps/viewer/src/longhaul_viewer/components/replay/address.mjs"

const PLAIN = { episode: "run/0", step: 0, call: null, prompt: "changes", colour: "probability", raw: false, search: "", transcript: false }
const read = (search) => stateOf(search, { wide: false })
const written = (state, before = "") => queryOf(before, state, { wanted: state.search, transcript: state.transcript })

test("an address says again what was looked at", () => {
  const looked = { episode: "a/1 b", step: 12, call: 2, prompt: "messages", colour: "mask", raw: true, search: '31: "room 31" ROÓM', transcript: true }
  for (const state of [PLAIN, looked, { ...PLAIN, colour: "gap" }]) assert.deepEqual(read(written(state)), state)
  assert.equal(written(looked).split("search=")[1].split("&")[0], "31%3A+%22room+31%22+RO%C3%93M")
})

test("what is as it is without words is left out, and what is another's stays", () => {
  assert.equal(queryOf("?theme=dark&call=1&colours=drift", PLAIN, { wanted: " ", transcript: null }), "theme=dark&episode=run%2F0&step=0")
})

test("an address of an older version shows what it showed", () => {
  const state = read("?episode=a&step=0&call=1&colours=drift&prompt=tokens")
  assert.deepEqual([state.call, state.colour, state.prompt], [1, "gap", "tokens"])
})

test("what an address cannot mean is passed over", () => {
  assert.deepEqual(read("?episode=run/0&step=-1&call=x&prompt=other&colour=red&observation=no"), PLAIN)
})

test("the transcript is open where it has room, or as the address says", () => {
  assert.equal(stateOf("?episode=a", { wide: true }).transcript, true)
  assert.equal(stateOf("?episode=a&transcript=0", { wide: true }).transcript, false)
  assert.equal(stateOf("?episode=a&transcript=1", { wide: false }).transcript, true)
})
