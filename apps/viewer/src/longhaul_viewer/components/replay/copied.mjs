/* A step as text for the clipboard: its messages, a request, and a test of the parser. */

import { textOf } from "./words.mjs"

/** Messages as OpenAI's chat completions have them; the prefix of the reply is one more.
 *  `picture` gives the address of a picture by its hash. */
export function chat(prompt, { prefix, picture }) {
  const messages = prompt.map((message) => {
    const content = message.parts.every((part) => typeof part === "string") ? textOf(message)
      : message.parts.map((part) => (typeof part === "string" ? { type: "text", text: part }
        : { type: "image_url", image_url: { url: picture(part.content_hash) } }))
    const whole = { role: message.role, content }
    if (message.tool_calls.length) whole.tool_calls = message.tool_calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }))
    if (message.tool_call_id != null) whole.tool_call_id = message.tool_call_id
    return whole
  })
  return prefix ? [...messages, { role: "assistant", content: prefix }] : messages
}

/** A command that asks a server for the reply once more. */
export function asCurl(messages, { model, tools, prefix }) {
  const body = { model: model || "policy", messages }
  if (tools.length) body.tools = tools.map((tool) => ({ type: "function", function: { name: tool.name, description: tool.description, parameters: JSON.parse(tool.parameters || "{}") } }))
  if (prefix) Object.assign(body, { continue_final_message: true, add_generation_prompt: false })
  const quoted = JSON.stringify(body, null, 2).replaceAll("'", "'\\''")
  return `curl "$OPENAI_BASE_URL/chat/completions" \\\n  -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" \\\n  -d '${quoted}'\n`
}

/** A test in Python: what the parser makes of the reply. Of a program's reply, that the action is in it. */
export function asTest({ episode, step, texts, reply, reading }) {
  const python = (value) => (value == null ? "None" : value === true ? "True" : value === false ? "False" : JSON.stringify(value))
  const name = `test_step_${step}_is_${texts.invalid ? "invalid" : "valid"}`
  const from = `    # ${episode}, step ${step}\n`
  if (!reading) return `def ${name}() -> None:\n${from}    reply = ${python(reply)}\n    assert ${python(texts.action)} in reply\n`
  const read = texts.invalid && texts.invalid.judge !== "parser" ? "    assert read.valid  # the environment refused it\n" : `    assert read.valid is ${texts.invalid ? "False" : "True"}\n`
  return `from longhaul_core.actions import ActionFormat, ActionParser\n\n\ndef ${name}() -> None:\n${from}` +
    `    parser = ActionParser(\n        format=ActionFormat(${python(reading.format)}),\n        require_thinking=${python(reading.require_thinking)},\n        reply_prefix=${python(reading.reply_prefix)},\n    )\n` +
    `    read = parser.parse(\n        ${python(reply)},\n        ${python(texts.admissible_actions)},\n    )\n    assert read.text == ${python(texts.action)}\n${read}`
}
