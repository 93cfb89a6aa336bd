import assert from "node:assert/strict"
import test from "node:test"

import { asCurl, asTest, chat } from "../../../../apps/viewer/src/longhaul_viewer/components/replay/copied.mjs"

const call = { id: "c", name: "look", arguments: "{}" }
const message = (role, parts, more = {}) => ({ role, parts, tool_calls: [], tool_call_id: null, ...more })
const picture = (hash) => `http://viewer/media/${hash}`

test("messages are those of chat completions, with tool calls, pictures and the reply's prefix", () => {
  const prompt = [
    message("system", ["Be", "brief."]),
    message("assistant", [""], { tool_calls: [call] }),
    message("tool", ["A room."], { tool_call_id: "c" }),
    message("user", ["See", { content_hash: "ab" }]),
  ]
  assert.deepEqual(chat(prompt, { prefix: "<think>", picture }), [
    { role: "system", content: "Be\nbrief." },
    { role: "assistant", content: "", tool_calls: [{ id: "c", type: "function", function: { name: "look", arguments: "{}" } }] },
    { role: "tool", content: "A room.", tool_call_id: "c" },
    { role: "user", content: [{ type: "text", text: "See" }, { type: "image_url", image_url: { url: "http://viewer/media/ab" } }] },
    { role: "assistant", content: "<think>" },
  ])
  assert.equal(chat(prompt, { prefix: "", picture }).length, 4)
})

test("a request is quoted for the shell", () => {
  const command = asCurl([{ role: "user", content: "it's" }], {
    model: "", tools: [{ name: "look", description: "Looks.", parameters: '{"type": "object"}' }], prefix: "<think>",
  })
  assert.ok(command.startsWith('curl "$OPENAI_BASE_URL/chat/completions"'))
  assert.ok(command.includes("it'\\''s"))
  const body = JSON.parse(/-d '([^]*)'\n$/.exec(command)[1].replaceAll("'\\''", "'"))
  assert.deepEqual(body, {
    model: "policy",
    messages: [{ role: "user", content: "it's" }],
    tools: [{ type: "function", function: { name: "look", description: "Looks.", parameters: { type: "object" } } }],
    continue_final_message: true,
    add_generation_prompt: false,
  })
})

const READING = { format: "tagged", require_thinking: false, reply_prefix: "" }
const STEP = { episode: "run/0/train/1/0/0/0", step: 4, reply: 'say "go"\n', reading: READING }

test("a test asks the parser what it made of the reply", () => {
  const valid = asTest({ ...STEP, texts: { invalid: null, action: "go", admissible_actions: null } })
  assert.match(valid, /^from longhaul_core\.actions import ActionFormat, ActionParser\n/)
  for (const line of [
    "def test_step_4_is_valid() -> None:\n    # run/0/train/1/0/0/0, step 4\n",
    'format=ActionFormat("tagged"),\n        require_thinking=False,\n        reply_prefix="",',
    'parser.parse(\n        "say \\"go\\"\\n",\n        None,\n    )',
    'assert read.text == "go"\n    assert read.valid is True\n',
  ]) assert.ok(valid.includes(line), line)
  const refused = (judge) => asTest({ ...STEP, texts: { invalid: { judge }, action: "", admissible_actions: ["go"] } })
  assert.match(refused("parser"), /test_step_4_is_invalid[^]*assert read.valid is False\n$/)
  assert.match(refused("environment"), /assert read.valid {2}# the environment refused it\n$/)
})

test("a program's reply is only asked for its action", () => {
  const test = asTest({ ...STEP, reading: null, texts: { invalid: null, action: "go" } })
  assert.ok(test.endsWith('    reply = "say \\"go\\"\\n"\n    assert "go" in reply\n'))
})
