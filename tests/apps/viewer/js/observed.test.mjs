import assert from "node:assert/strict"
import test from "node:test"

import { boardEnd, wrote } from "../../../../apps/viewer/src/longhaul_viewer/components/observed.mjs"

test("lines of equally many squares are a board, until one has another number", () => {
  const spaced = ["# # #", "# @ #", "# # #", "You are here."]
  assert.equal(boardEnd(spaced, 0), 3)
  assert.equal(boardEnd(spaced, 3), 3)
  assert.equal(boardEnd(["####", "#.$#", "###"], 0), 2)
  assert.equal(boardEnd(["a word", "a word", "a word"], 0), 0)
})

test("a reply without text says why", () => {
  assert.equal(wrote({ reply: null, tool_calls: [] }), "(removed by the run's retention)")
  assert.equal(wrote({ reply: "", tool_calls: [] }), "(no text)")
  assert.equal(wrote({ reply: "", tool_calls: [{}] }), "")
  assert.equal(wrote({ reply: "Go.", tool_calls: [] }), "Go.")
})
