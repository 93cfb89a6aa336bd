import assert from "node:assert/strict"
import test from "node:test"

import { callFacts, cure, slowness, timesOf } from "../../../../apps/viewer/src/longhaul_viewer/components/replay/facts.mjs"

const CALL = {
  policy_version: 3, conversation: 0, continuation: "exact", num_cached_tokens: 5, num_prompt_tokens: 9, cost_usd: null,
  credit_share: 1, credited_by: "own_step", advantage: -0.5, trained: true, split_reason: null,
}
const TEXTS = { sampling: null, overridden: [] }
const factsOf = ({ call = {}, step = {}, ...more } = {}) => Object.fromEntries(callFacts({
  step: { trained: true, value: null, ...step }, call: { ...CALL, ...call }, texts: TEXTS, several: false, isLast: false, cured: "so", ...more,
}).map(([name, value]) => [name, value]))

test("a call says what it went on from, what was cached and that it was trained", () => {
  assert.deepEqual(factsOf(), {
    "Policy version": "3", Conversation: "0, goes on", "Prompt cached": "5 of 9", "In the loss": "yes", Row: "goes on",
  })
})

test("a conversation that began anew names its cure, any other none", () => {
  assert.equal(factsOf({ call: { continuation: "changed" } }).Cure, "so")
  assert.equal(factsOf({ call: { continuation: "changed" } }).Conversation, "0, begins anew, an earlier message changed")
  assert.equal(factsOf({ call: { continuation: "start" } }).Conversation, "0, begins here")
  assert.ok(!("Cure" in factsOf({ call: { continuation: "start" } })))
})

test("the cure is that of the first message that is not the one before", () => {
  const prompt = [{ role: "system" }, { role: "user" }, { role: "assistant" }]
  const kept = { kind: "kept", later: 0, num_messages: 1 }
  const messages = (...changes) => cure({ messages: changes }, prompt)
  assert.match(messages({ kind: "changed", later: 0 }), /put clocks, counters and states into the newest message/)
  assert.match(messages(kept, { kind: "changed", later: 2 }), /have the client send replies back as they came/)
  assert.match(messages(kept, { kind: "changed", later: 1 }), /have the client send the whole history/)
  assert.match(messages(kept, { kind: "dropped", message: { role: "assistant" } }), /send replies back/)
  assert.match(cure(undefined, prompt), /have the client send the whole history/)
})

test("one of several calls says whose advantage it has a share of", () => {
  const memory = { credit_share: 0.25, credited_by: "next_step" }
  const credited = (more) => factsOf({ several: true, call: memory, ...more })["Credited by"]
  assert.equal(credited(), "the next step")
  assert.equal(credited({ isLast: true }), "this step")
  assert.equal(credited({ step: { value: 0.5 } }), "this step") // a critic credits each call by its own
  assert.equal(factsOf({ several: true, call: memory })["Share of the advantage"], "0.25")
  assert.ok(!("Credited by" in factsOf()))
})

test("what a program asked for otherwise than the run is named", () => {
  const texts = { sampling: { temperature: 0.5, top_p: 0.9, max_tokens: 7, altered: [["seed", 1]] }, overridden: ["tools.web_search", "max_tokens"] }
  const facts = factsOf({ texts, call: { cost_usd: 0.01, split_reason: "not_a_prefix" } })
  assert.equal(facts["Its sampling"], "temperature 0.5, top_p 0.9, ≤ 7 tokens, seed 1")
  assert.equal(facts.Overridden, "tools.web_search, max_tokens")
  assert.equal(facts.Cost, "$0.0100")
  assert.equal(facts.Row, "new: not a prefix")
})

test("a step is slow if it took twice the median and only two others took longer", () => {
  const calls = [{ purpose: "act", queue_seconds: 0, generate_seconds: 3, num_action_tokens: 8 }]
  const bars = timesOf(calls, 1)
  assert.deepEqual(bars.map(([kind, length]) => [kind, length]), [["queue", 0], ["generate", 3], ["environment", 1]])
  assert.deepEqual(slowness(bars, [1, 1, 1, 4]), ["Slowest step", ": 4.0 × the median; 75 % of it was generate."])
  assert.equal(slowness(bars, [1, 1, 1, 1, 4, 9])[0], "Slow step")
  assert.equal(slowness(bars, [1, 1, 1, 1, 1, 1, 1, 4, 9, 9, 9]), null)
  assert.equal(slowness(bars, [2, 2, 4]), null)
  assert.equal(slowness(bars, [1, 4]), null)
})
