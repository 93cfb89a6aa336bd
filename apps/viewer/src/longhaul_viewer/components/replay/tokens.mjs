/* What colours tokens, and what is written of one. */

import { number, signed } from "./words.mjs"

export const COLOURS = ["probability", "gap", "entropy", "advantage", "mask"]

const furthest = (...values) => values.reduce((most, value) => (Math.abs(value) > Math.abs(most) ? value : most))

export const SCALES = {
  probability: {
    title: "Probability when it was sampled",
    thresholds: [0.01, 0.05, 0.2, 0.5, 0.9].map(Math.log),
    labels: ["< 1 %", "1–5 %", "5–20 %", "20–50 %", "50–90 %", "≥ 90 %"],
    prefix: "p",
    worst: Math.min,
  },
  gap: {
    title: "Learner's logprob − sampler's",
    thresholds: [-0.2, -0.05, -0.01, 0.01, 0.05, 0.2],
    labels: ["< −0.2", "−0.2…−0.05", "−0.05…−0.01", "within 0.01", "0.01…0.05", "0.05…0.2", "> 0.2"],
    prefix: "d",
    worst: furthest,
  },
  entropy: {
    title: "Entropy of the learner's next token before the update, in nats",
    thresholds: [0.05, 0.2, 0.7, 1.4, 2.8],
    labels: ["< 0.05", "0.05–0.2", "0.2–0.7", "0.7–1.4", "1.4–2.8", "≥ 2.8"],
    prefix: "e",
    worst: Math.max,
  },
  advantage: {
    title: "Advantage, as the loss used it",
    thresholds: [-1, -0.3, -1e-9, 1e-9, 0.3, 1],
    labels: ["< −1", "−1…−0.3", "−0.3…0", "0", "0…0.3", "0.3…1", "> 1"],
    prefix: "d",
    worst: furthest,
  },
  mask: { title: "Whether it was in the loss", thresholds: [0.5], labels: ["not in the loss", "in the loss"], prefix: "m", worst: Math.min },
}

/** Colours that a reply has values for. */
export const coloursOf = (tokens, call) => COLOURS.filter((colour) =>
  colour === "gap" ? tokens?.policy_logprobs != null : colour === "advantage" ? tokens?.advantages != null || call?.advantage != null : true)

const valueOf = (colour, tokens, place, { advantage, inLoss }) => ({
  probability: () => tokens.behavior_logprobs[place],
  gap: () => tokens.policy_logprobs[place] - tokens.behavior_logprobs[place],
  entropy: () => tokens.policy_entropies[place],
  advantage: () => tokens.advantages?.[place] ?? advantage,
  mask: () => (inLoss ? 1 : 0),
})[colour]()

/** Class of a span of `size` tokens: the scale's letter, and how many thresholds its worst value reaches. */
export function paintOf(colour, tokens, token, size, call) {
  const { prefix, thresholds, worst } = SCALES[colour]
  const value = worst(...Array.from({ length: size }, (_, place) => valueOf(colour, tokens, token + place, call)))
  return prefix + thresholds.filter((threshold) => value >= threshold).length
}

/** Names and values of what is known of a token of a reply. */
export function factsOf(tokens, at, { advantage, inLoss }) {
  const sampler = tokens.behavior_logprobs[at]
  const learner = tokens.policy_logprobs?.[at]
  return [
    ["text", quoted(tokens.texts, tokens.sizes, at)], ["token", tokens.ids[at]], ["p", `${(100 * Math.exp(sampler)).toFixed(2)} %`],
    ["logprob", sampler.toFixed(4)],
    learner == null ? null : ["learner", learner.toFixed(4)], learner == null ? null : ["gap", signed(learner - sampler, 4)],
    tokens.policy_entropies ? ["entropy", `${tokens.policy_entropies[at].toFixed(3)} nats`] : null,
    ["advantage", signed(tokens.advantages?.[at] ?? advantage, 4)],
    tokens.values ? ["value", number(tokens.values[at], 4)] : null,
    ["in the loss", inLoss ? "yes" : "no"],
  ].filter(Boolean)
}

/** The text of the span that a token is in, so that blanks and line ends can be seen. */
export function quoted(texts, sizes, token) {
  let span = 0
  for (let seen = sizes[0]; seen <= token; seen += sizes[span]) span++
  return JSON.stringify(texts[span])
}

/** Why no entropy is stored for a reply. */
export const noEntropy = (tokens) =>
  "No entropy is stored for this reply: " + (tokens.policy_logprobs == null
    ? "the learner computes it for the replies of an update, and this one has been in none."
    : "it was trained by an older version, which did not keep it.")
