import assert from "node:assert/strict"
import test from "node:test"

import { interval, many, number, reach, seconds, signed, textOf, tone } from "../../../../apps/viewer/src/longhaul_viewer/components/replay/words.mjs"

test("numbers have a true minus sign, no zeros at their end, and a dash for nothing", () => {
  assert.deepEqual([0.12345, -1.5, 2, 0, null].map((value) => number(value)), ["0.123", "−1.5", "2", "0", "–"])
  assert.deepEqual([0.12345, -1.5, 0, null].map((value) => signed(value)), ["+0.123", "−1.5", "0", "–"])
  assert.equal(number(0.123456, 5), "0.12346")
})

test("times have three digits, in seconds from one second on", () => {
  assert.deepEqual([123.4, 12.346, 0.5, 0.0042].map(seconds), ["123 s", "12.35 s", "500 ms", "4.2 ms"])
})

test("one thing is no plural", () => {
  assert.deepEqual([0, 1, 12345].map((count) => many(count, "token")), ["0 tokens", "1 token", "12,345 tokens"])
})

test("the reach is the largest absolute value, and never zero", () => {
  assert.equal(reach([0.5, -2, null]), 2)
  assert.ok(reach([0, null]) > 0)
  assert.deepEqual([2, -2, 0].map(tone), ["plus", "minus", "zero"])
})

test("the text of a message is that of its parts, without pictures", () => {
  assert.equal(textOf({ parts: ["Look", { content_hash: "a" }, "here"] }), "Look\nhere")
})

test("a sampled number has its interval", () => {
  assert.equal(interval({ estimate: 0.25, low: -0.1, high: 0.6 }), "+0.25 [−0.1, +0.6]")
})
