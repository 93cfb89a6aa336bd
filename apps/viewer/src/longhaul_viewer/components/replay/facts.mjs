/* What is written beside a step, of its calls and of where its time went. */

import { number, signed, tone, words } from "./words.mjs"

/* How a program lets a conversation continue, by the role of the first message that differs. */
const CURES = {
  system: "put clocks, counters and states into the newest message, not into the system message",
  assistant: "have the client send replies back as they came: native tool calls, no stop words of its own",
  any: "have the client send the whole history: no trimming, no compaction, no notes of one turn",
}

/** How a conversation that began anew could have continued: `changes` of its prompt, the messages of which are `prompt`. */
export function cure(changes, prompt) {
  const change = changes?.messages.find((each) => each.kind !== "kept")
  return CURES[(change?.message ?? prompt[change?.later])?.role] ?? CURES.any
}

/** Rows of the table of a call: name, value, class, explanation.
 *
 *  several: whether the step has more calls than this one
 *  isLast: whether the step is the last
 *  cured: what `cure` says */
export function callFacts({ step, call, texts, several, isLast, cured }) {
  const cached = call.num_cached_tokens
  const goes = { start: "begins here", exact: "goes on", rewritten: "goes on, rewritten", forked: "forks here", changed: "begins anew, an earlier message changed" }
  const drawn = texts?.sampling
  const shared = several || call.credit_share !== 1
  // With a critic, whose value each step has, a call is credited by its own step whatever it says.
  const later = call.credited_by === "next_step" && step.value == null && !isLast
  return [
    call.policy_version == null ? null : ["Policy version", String(call.policy_version), "", "Optimizer steps behind the weights that sampled the reply"],
    call.continuation == null ? null : ["Conversation", `${call.conversation}, ${goes[call.continuation] ?? call.continuation}`],
    call.continuation !== "changed" ? null : ["Cure", cured, "", "By the first message that is not the one before. The run's log has both texts, and the guide to agents more"],
    cached == null || call.num_prompt_tokens == null ? null : ["Prompt cached", `${cached} of ${call.num_prompt_tokens}`, "", "Leading tokens that the engine had kept of earlier prompts"],
    call.cost_usd == null ? null : ["Cost", `$${call.cost_usd.toFixed(4)}`],
    drawn == null ? null : ["Its sampling", [`temperature ${drawn.temperature}`, `top_p ${drawn.top_p}`, `≤ ${drawn.max_tokens} tokens`, ...drawn.altered.map(([name, value]) => `${name} ${value}`)].join(", "), "", "Not as the run says"],
    !texts?.overridden.length ? null : ["Overridden", texts.overridden.join(", "), "", "What the program asked for and did not get, by the names of the answer's header"],
    shared && call.advantage != null ? ["Credited by", later ? "the next step" : "this step", "", "Whose advantage it has a share of: the next step's prompt shows what a memory asked for"] : null,
    shared ? ["Share of the advantage", number(call.credit_share)] : null,
    shared ? ["Its advantage", signed(call.advantage), tone(call.advantage)] : null,
    ["In the loss", call.trained && step.trained ? "yes" : "no"],
    ["Row", call.split_reason ? `new: ${words(call.split_reason)}` : step.trained ? "goes on" : "–", "", "A row is one sequence that the learner reads; why a new one begins here"],
  ].filter(Boolean)
}

/** Bars of a step's time: kind, seconds, title. */
export const timesOf = (calls, environmentSeconds) => [
  ...calls.flatMap((call) => [
    ["queue", call.queue_seconds, `${call.purpose}: waited in the queue`],
    ["generate", call.generate_seconds, `${call.purpose}: generated ${call.num_action_tokens ?? ""} tokens`],
  ]),
  ["environment", environmentSeconds, "environment"],
]

/** Words on a step that took unusually long among the `totals` of an episode, in seconds; null for any other. */
export function slowness(bars, totals) {
  const total = bars.reduce((sum, bar) => sum + bar[1], 0)
  const rank = totals.filter((each) => each > total).length
  const typical = [...totals].sort((a, b) => a - b)[Math.floor(totals.length / 2)]
  if (totals.length <= 2 || total <= 2 * typical || rank >= 3) return null
  const [most, longest] = bars.reduce((a, b) => (b[1] > a[1] ? b : a))
  return [rank === 0 ? "Slowest step" : "Slow step",
    `: ${typical > 0 ? `${(total / typical).toFixed(1)} × the median; ` : ""}${Math.round((100 * longest) / total)} % of it was ${most}.`]
}
