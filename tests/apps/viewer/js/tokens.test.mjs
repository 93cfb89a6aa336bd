import assert from "node:assert/strict"
import test from "node:test"

import { COLOURS, SCALES, coloursOf, factsOf, noEntropy, paintOf, quoted } from "../../../../apps/viewer/src/longhaul_viewer/components/replay/tokens.mjs"

const CREDIT = { advantage: 0.5, inLoss: true }
const TOKENS = {
  ids: [7, 8, 9],
  texts: ["a ", "שׁ"], // of one token, and of two
  sizes: [1, 2],
  behavior_logprobs: [Math.log(0.5), Math.log(0.05), Math.log(0.9)],
  policy_logprobs: [Math.log(0.5), Math.log(0.05) - 0.3, Math.log(0.9) + 0.1],
  policy_entropies: [0.05, 2.9, 0.1],
  advantages: null,
  values: null,
}

test("a span has the class of its worst token", () => {
  const classes = (colour) => [paintOf(colour, TOKENS, 0, 1, CREDIT), paintOf(colour, TOKENS, 1, 2, CREDIT)]
  assert.deepEqual(Object.fromEntries(COLOURS.map((colour) => [colour, classes(colour)])), {
    probability: ["p4", "p2"], // 50–90 %; 5–20 %, the smaller of 5 % and 90 %
    gap: ["d3", "d0"], // within 0.01; below −0.2, further from zero than +0.1
    entropy: ["e1", "e5"],
    advantage: ["d5", "d5"],
    mask: ["m1", "m1"],
  })
  assert.equal(paintOf("mask", TOKENS, 0, 1, { ...CREDIT, inLoss: false }), "m0")
})

test("a token's own advantage goes before its call's", () => {
  const tokens = { ...TOKENS, advantages: [-2, 0, 0.1] }
  assert.deepEqual([0, 1, 2].map((at) => paintOf("advantage", tokens, at, 1, CREDIT)), ["d0", "d3", "d4"])
})

test("each scale names one class more than it has thresholds, in order", () => {
  for (const { thresholds, labels } of Object.values(SCALES)) {
    assert.equal(labels.length, thresholds.length + 1)
    assert.deepEqual(thresholds, [...thresholds].sort((a, b) => a - b))
  }
})

test("a colour is offered where the reply has its values", () => {
  const bare = { ...TOKENS, policy_logprobs: null }
  assert.deepEqual(coloursOf(TOKENS, { advantage: 1 }), COLOURS)
  assert.deepEqual(coloursOf(bare, { advantage: null }), ["probability", "entropy", "mask"])
  assert.deepEqual(coloursOf({ ...bare, advantages: [1, 1, 1] }, { advantage: null }), ["probability", "entropy", "advantage", "mask"])
})

test("what is known of a token is written in its units", () => {
  assert.deepEqual(factsOf(TOKENS, 1, CREDIT), [
    ["text", '"שׁ"'], ["token", 8], ["p", "5.00 %"], ["logprob", "-2.9957"], ["learner", "-3.2957"], ["gap", "−0.3"],
    ["entropy", "2.900 nats"], ["advantage", "+0.5"], ["in the loss", "yes"],
  ])
  const bare = { ...TOKENS, policy_logprobs: null, policy_entropies: null, values: [1, 2, -3] }
  assert.deepEqual(factsOf(bare, 2, { advantage: null, inLoss: false }).slice(3), [
    ["logprob", "-0.1054"], ["advantage", "–"], ["value", "−3"], ["in the loss", "no"],
  ])
})

test("a text is quoted whole for each of its tokens", () => {
  assert.deepEqual([0, 1, 2].map((token) => quoted(["\n", "木"], [1, 2], token)), ['"\\n"', '"木"', '"木"'])
})

test("a reply without entropy says whether it was in an update", () => {
  assert.match(noEntropy(TOKENS), /older version, which did not keep it/)
  assert.match(noEntropy({ ...TOKENS, policy_logprobs: null }), /this one has been in none/)
})
