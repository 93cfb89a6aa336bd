/* What the address of a replay says, and back. */

import { COLOURS } from "./tokens.mjs"

export const PROMPTS = ["changes", "messages", "tokens"]

/** What an address asks for; `wide`: whether the transcript has room beside the rest. */
export function stateOf(search, { wide }) {
  const query = new URLSearchParams(search)
  const whole = (name) => (/^\d{1,9}$/.test(query.get(name) ?? "") ? +query.get(name) : null)
  const among = (name, values) => (values.includes(query.get(name)) ? query.get(name) : values[0])
  return {
    episode: query.get("episode"),
    step: whole("step") ?? 0,
    call: whole("call"),
    prompt: among("prompt", PROMPTS),
    colour: query.get("colours") === "drift" ? "gap" : among("colour", COLOURS),
    raw: query.get("observation") === "raw",
    search: query.get("search") ?? "",
    transcript: query.has("transcript") ? query.get("transcript") === "1" : wide,
  }
}

/** The query of an address that asks for this; what is as it is without words is left out.
 *  `search` is the query before, `transcript` what the reader chose, null for nothing. */
export function queryOf(search, { episode, step, call, prompt, colour, raw }, { wanted, transcript }) {
  const query = new URLSearchParams(search)
  const set = (name, value) => (value == null ? query.delete(name) : query.set(name, value))
  set("episode", episode)
  set("step", step)
  set("call", call)
  set("prompt", prompt === PROMPTS[0] ? null : prompt)
  set("colour", colour === COLOURS[0] ? null : colour)
  set("colours", null)
  set("observation", raw ? "raw" : null)
  set("search", wanted.trim() ? wanted : null)
  set("transcript", transcript == null ? query.get("transcript") : transcript ? 1 : 0)
  return String(query)
}
