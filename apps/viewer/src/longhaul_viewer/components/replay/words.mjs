/* Numbers and names, as the replay writes them. */

export const number = (value, digits = 3) =>
  value == null ? "–" : String(Number(value.toFixed(digits))).replace("-", "−")
export const signed = (value, digits = 3) =>
  value == null ? "–" : (value > 0 ? "+" : "") + number(value, digits)
/** A sampled number with its interval. */
export const interval = ({ estimate, low, high }) => `${signed(estimate)} [${signed(low)}, ${signed(high)}]`
export const many = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`
export const seconds = (value) =>
  value >= 100 ? `${value.toFixed(0)} s` : value >= 1 ? `${value.toFixed(2)} s` : `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`
export const words = (value) => String(value).replaceAll("_", " ")
export const tone = (value) => (value > 0 ? "plus" : value < 0 ? "minus" : "zero")
export const textOf = (message) => message.parts.filter((part) => typeof part === "string").join("\n")
export const callName = (call) => [call.purpose, call.agent, call.model].filter(Boolean).join(" · ")

/** Largest absolute value, at least a little. */
export const reach = (values) => Math.max(1e-9, ...values.map((value) => Math.abs(value ?? 0)))
