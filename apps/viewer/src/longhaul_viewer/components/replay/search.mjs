/* Words that are looked for in an episode.
 *
 * Terms as the text index has them, by `longhaul_core/store/search_terms.py`: words in lower case without
 * accents, other signs between them; each character of a script without spaces is a term by itself. */

import { textOf } from "./words.mjs"

const WITHOUT_SPACES =
  "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u2e80-\\u2fdf\\u3005-\\u3007\\u3021-\\u3029\\u3040-\\u30ff" +
  "\\u3105-\\u312f\\u3131-\\u318f\\u31a0-\\u31bf\\u31f0-\\u31ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\ua960-\\ua97f" +
  "\\uac00-\\ud7ff\\uf900-\\ufaff\\u{20000}-\\u{3ffff}"
const ACCENT = "[\\u0300-\\u036f]"
const TERM = new RegExp(
  `(?=[\\p{L}\\p{N}])[${WITHOUT_SPACES}]${ACCENT}*|(?:(?![${WITHOUT_SPACES}])[\\p{L}\\p{N}]${ACCENT}*)+`, "gu")
const ACCENTS = new RegExp(ACCENT, "g")

const plain = (text) => text.normalize("NFKD").replace(ACCENTS, "").normalize("NFC").toLowerCase()
const termsOf = (text) => plain(text).match(TERM) ?? []

/** What a person typed: each word, or "phrase", as terms that follow each other. */
export const sought = (wanted) =>
  [...wanted.matchAll(/"([^"]*)"|\S+/g)].map((match) => termsOf(match[1] ?? match[0])).filter((phrase) => phrase.length)

/** Whether the phrase begins with the term of this number. */
const standsAt = (phrase, terms, number) => phrase.every((term, place) => terms[number + place] === term)

const asksOf = ({ tool_calls }) => (tool_calls.length ? JSON.stringify(tool_calls) : "")

/** The terms of each text of a step of the transcript; no phrase goes from one text into another. */
export const saidIn = (step) => [
  step.observation,
  step.action,
  step.calls.flatMap((call) => [call.reply, asksOf(call)]).join("\n"),
  step.calls.flatMap((call) => call.messages.flatMap((message) => [textOf(message), asksOf(message), message.reasoning])).join("\n"),
].map((text) => termsOf(text ?? ""))

/** Numbers of the steps whose texts (`saidIn` of each) have all phrases. */
export const stepsWith = (phrases, said) => {
  const has = (step, phrase) => step.some((terms) => terms.some((_, number) => standsAt(phrase, terms, number)))
  return [...said.keys()].filter((step) => phrases.every((phrase) => has(said[step], phrase)))
}

/** Where a text has one of the phrases: pairs of offsets. */
export const placesOf = (phrases, text) => {
  const places = [...text.matchAll(TERM)].flatMap((match) =>
    termsOf(match[0]).map((term) => ({ term, first: match.index, last: match.index + match[0].length }))) // ½ has two
  const terms = places.map((place) => place.term)
  return phrases.flatMap((phrase) => places.flatMap(({ first }, number) =>
    standsAt(phrase, terms, number) ? [[first, places[number + phrase.length - 1].last]] : []))
}
