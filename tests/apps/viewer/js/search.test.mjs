/* `searches.json` has what people type, and what is found: the text index is held to the same file. */
import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import test from "node:test"

import { placesOf, saidIn, sought, stepsWith } from "../../../../apps/viewer/src/longhaul_viewer/components/replay/search.mjs"

const { sayings, last, searches } = JSON.parse(readFileSync(new URL("./searches.json", import.meta.url), "utf-8"))
const call = { reply: "r", tool_calls: [], messages: [] }
const steps = [
  ...sayings.map((observation) => ({ observation, action: "a", calls: [call] })),
  {
    observation: last.observation,
    action: "a",
    calls: [{
      reply: last.reply,
      tool_calls: [],
      messages: [{ parts: [""], reasoning: last.reasoning, tool_calls: [last.tool_call] }],
    }],
  },
]
const said = steps.map(saidIn)
const texts = steps.flatMap((step) => [step.observation, ...step.calls.flatMap((each) =>
  [each.reply, ...each.messages.flatMap((message) => [message.reasoning, ...message.tool_calls.flatMap(Object.values)])])])

for (const [wanted, { found, lit }] of Object.entries(searches)) {
  test(`${wanted} is found where the text index finds it, and lit there`, () => {
    const phrases = sought(wanted)
    assert.deepEqual(phrases.length ? stepsWith(phrases, said) : [], found)
    const shown = texts.flatMap((text) => placesOf(phrases, text).map(([first, end]) => text.slice(first, end)))
    assert.deepEqual([...new Set(shown)].sort(), lit)
  })
}

test("words without a letter or a digit look for nothing", () => assert.deepEqual(sought('«» "" -'), []))
