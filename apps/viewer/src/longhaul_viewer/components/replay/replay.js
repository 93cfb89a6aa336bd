/* Replay of one episode. Everything that is looked at is fetched from the API and drawn here; Python
 * is told the selected step and nothing else. What a model or an environment wrote enters the page
 * by textContent alone, never as markup.
 *
 *   Episode     what has been fetched of an episode, each part once
 *   TokenView   tokens as spans, built only where they are looked at
 *   Replay      the page: state in the address, keys, drawing
 *
 * What has nothing to do with the page stands in the modules beside it, which have unit tests.
 */

import { h, observed, read, wrote } from "../observed.mjs"
import { PROMPTS, queryOf, stateOf } from "./address.mjs"
import { asCurl, asTest, chat } from "./copied.mjs"
import { callFacts, cure, slowness, timesOf } from "./facts.mjs"
import { placesOf, saidIn, sought, stepsWith } from "./search.mjs"
import { SCALES, coloursOf, factsOf, noEntropy, paintOf, quoted } from "./tokens.mjs"
import { callName, interval, many, number, reach, seconds, signed, textOf, tone, words } from "./words.mjs"

const CHUNK_TOKENS = 256 // of a token view, built at once when it comes into sight
const NEAR_STEPS = 12 // fetched with the step that is opened
const FAR_STEPS = 32 // fetched at a time afterwards
const ADDRESS_MS = 120 // browsers limit how often an address may change
const SELECTION_MS = 600
const FOLLOW_MS = 4000
const MOST_LIT = 5000 // places of the words that are looked for, lit at once
const FOLDED_LINES = 4 // of a message that changed: longer kept runs are folded
const SPEEDS = [0.5, 1, 2, 4, 8, 16, 32]

const HELP = [
  ["← →  or  h l", "step before, step after"],
  ["Home End", "first step, last step"],
  ["k j", "episode before, episode after, of this group"],
  ["p n", "group before, group after"],
  ["Space", "play, pause"],
  ["< >", "slower, faster"],
  ["i", "next step with an invalid action"],
  ["[ ]", "token before, token after, in the reply"],
  ["t", "transcript"],
  ["m", "prompt: changes, messages, tokens"],
  ["C", "colour of the reply's tokens"],
  ["/", "search the episode; Enter: next match"],
  ["?", "this list"],
]

const address = (page, parameters) => `${page}?${new URLSearchParams(parameters)}`

// ---------------------------------------------------------------- what is fetched

class Episode {
  constructor(api, id) {
    this.api = api
    this.id = id
    this.base = `${api}/episodes/${id.split("/").map(encodeURIComponent).join("/")}`
    this.steps = new Map() // step → StepTexts
    this.messages = new Map() // number → PromptMessage
    this.tools = new Map()
    this.changes = new Map() // "step/call" → PromptChanges
    this.prompts = new Map() // "step/call" → {ids, texts, sizes}
    this.fetching = new Map()
  }

  async open() {
    const outline = await read(`${this.base}/outline`)
    this.outline = outline
    this.calls = outline.steps.reward.map(() => [])
    const columns = Object.entries(outline.calls)
    const latest = new Map()
    outline.calls.step_index.forEach((step, place) => {
      const call = Object.fromEntries(columns.map(([name, column]) => [name, column[place]]))
      const stream = `${call.agent}\n${call.purpose}`
      const own = `${stream}\n${call.conversation}`
      call.before = latest.get(own) ?? latest.get(stream) ?? null
      latest.set(own, call).set(stream, call)
      this.calls[step].push(call)
    })
    return this
  }

  get numSteps() {
    return this.outline.steps.reward.length
  }

  step(index) {
    const columns = this.outline.steps
    return Object.fromEntries(Object.keys(columns).map((name) => [name, columns[name][index]]))
  }

  /** Texts and changes of steps [first, stop), unless they are here or on their way. */
  async load(first, stop) {
    first = Math.max(0, first)
    stop = Math.min(this.numSteps, stop)
    while (first < stop && this.steps.has(first)) first++
    while (stop > first && this.steps.has(stop - 1)) stop--
    if (first >= stop) return
    const range = `from=${first}&to=${stop}`
    if (!this.fetching.has(range)) {
      this.fetching.set(range, this.fetch(range).finally(() => this.fetching.delete(range)))
    }
    await this.fetching.get(range)
  }

  async fetch(range) {
    const [texts, changes] = await Promise.all([
      read(`${this.base}/texts?${range}`),
      read(`${this.base}/changes?${range}`),
    ])
    for (const [key, message] of Object.entries(texts.messages)) this.messages.set(+key, message)
    for (const [key, tools] of Object.entries(texts.tools)) this.tools.set(+key, tools)
    for (const each of changes) this.changes.set(`${each.step_index}/${each.call_index}`, each)
    for (const step of texts.steps) this.steps.set(step.step_index, step)
    this.reading = texts.reading
    if (texts.stop === this.numSteps) this.finalObservation = texts.final_observation
  }

  /** Tokens of a call's prompt: those it shares with the call before come from there. */
  async prompt(call) {
    const key = `${call.step_index}/${call.call_index}`
    if (this.prompts.has(key)) return this.prompts.get(key)
    const before = call.before && this.prompts.get(`${call.before.step_index}/${call.before.call_index}`)
    const at = `${this.base}/steps/${call.step_index}/calls/${call.call_index}/tokens`
    const from = before ? call.num_shared_prompt_tokens ?? 0 : 0
    let slice = await read(`${at}?from=${from}&to=${call.num_prompt_tokens}`)
    let shared = { ids: [], texts: [], sizes: [] }
    if (slice.first > 0) {
      let spans = 0
      let tokens = 0
      while (tokens < slice.first) tokens += before.sizes[spans++]
      if (tokens === slice.first) {
        shared = {
          ids: before.ids.slice(0, tokens),
          texts: before.texts.slice(0, spans),
          sizes: before.sizes.slice(0, spans),
        }
      } else slice = await read(`${at}?to=${call.num_prompt_tokens}`) // a character spans the seam
    }
    const prompt = {
      ids: shared.ids.concat(slice.ids),
      texts: shared.texts.concat(slice.texts),
      sizes: shared.sizes.concat(slice.sizes),
    }
    this.prompts.set(key, prompt)
    return prompt
  }

  async transcript() {
    this.read ??= read(`${this.base}/transcript`).catch((error) => {
      this.read = null // it is asked for again
      throw error
    })
    return this.read
  }

  /** The terms of each step, for a search. */
  async terms() {
    const steps = await this.transcript()
    this.said ??= steps.map(saidIn)
    return this.said
  }

  picture(hash) {
    return `${this.api}/media/${hash}`
  }
}

// ---------------------------------------------------------------- tokens

/** Tokens as spans. Spans are built chunk by chunk as they come into sight: until then a chunk is
 *  one text of the same size, so that scrolling and the browser's search work over the whole. */
class TokenView {
  constructor({ ids, texts, sizes, runs, describe, paint, onPick, onBuilt, tall }) {
    this.tokens = { ids, texts, sizes }
    this.describe = describe
    this.paint = paint
    this.onPick = onPick
    this.onBuilt = onBuilt
    this.element = h("div", { class: "tokens" + (tall ? " tall" : ""), dir: "auto", tabindex: tall ? "0" : null })
    this.chunks = []
    let span = 0
    let token = 0
    for (const [kind, length] of runs ?? [["", ids.length]]) {
      if (kind === "dropped") {
        this.element.append(h("span", { class: "gone", title: "dropped since the prompt before" }, `⌫ ${many(length, "token")} dropped`))
        continue
      }
      const end = token + length
      while (token < end && span < texts.length) {
        const begin = span
        const first = token
        while (span < texts.length && token < end && token - first < CHUNK_TOKENS) token += sizes[span++]
        const chunk = h("span", { class: `chunk ${kind}` }, texts.slice(begin, span).join("").replaceAll("\n", "↵\n"))
        chunk.range = [begin, span, first]
        this.chunks.push(chunk)
        this.element.append(chunk)
      }
    }
    if (ids.length > 2 * CHUNK_TOKENS) {
      this.watch = new IntersectionObserver((entries) => {
        for (const entry of entries) if (entry.isIntersecting) this.build(entry.target)
      }, { rootMargin: "300px" })
      this.chunks.forEach((chunk) => this.watch.observe(chunk))
    } else this.chunks.forEach((chunk) => this.build(chunk))
    this.element.onpointerover = (event) => this.pick(event.target.closest(".t"), false)
    this.element.onclick = (event) => this.pick(event.target.closest(".t"), true)
  }

  build(chunk) {
    this.watch?.unobserve(chunk)
    if (chunk.built) return
    chunk.built = true
    const [begin, end, first] = chunk.range
    let token = first
    chunk.replaceChildren(
      ...this.tokens.texts.slice(begin, end).map((text, place) => {
        const size = this.tokens.sizes[begin + place]
        const span = document.createElement("span")
        span.className = `t ${this.paint?.(token, size) ?? ""}${size > 1 ? " joined" : ""}`
        span.token = token
        span.size = size
        const lines = text.split("\n")
        lines.forEach((line, index) => {
          if (index) span.append(h("i", { class: "newline" }, "↵"), "\n")
          if (line) span.append(line)
        })
        token += size
        return span
      }),
    )
    this.onBuilt()
  }

  repaint(paint) {
    this.paint = paint
    for (const chunk of this.chunks) {
      chunk.built = false
      this.build(chunk)
    }
  }

  pick(span, pin) {
    if (!span || (this.pinned && !pin)) return
    if (pin) {
      this.pinned?.classList.remove("pinned")
      this.pinned = this.pinned === span ? null : span
      this.pinned?.classList.add("pinned")
    }
    this.onPick(this.describe(span.token, span.size))
  }

  /** The token before or after the pinned one. */
  move(by) {
    const spans = [...this.element.querySelectorAll(".t")]
    if (!spans.length) return
    const here = spans.indexOf(this.pinned)
    const next = spans[Math.min(spans.length - 1, Math.max(0, here < 0 ? (by > 0 ? 0 : spans.length - 1) : here + by))]
    if (next !== this.pinned) this.pick(next, true)
    next.scrollIntoView({ block: "nearest" })
  }
}

// ---------------------------------------------------------------- the page

class Replay {
  constructor(root, component) {
    this.root = root
    this.component = component
    this.page = h("div", { class: "replay" })
    root.append(this.page)
    this.episodes = new Map()
    this.wanted = ""
    this.playing = null
    this.speed = 1
    this.waiting = false
    this.listen()
    this.open()
  }

  update(component) {
    this.component = component
  }

  // ------------------------------------------------ address

  addressNow() {
    return `${location.pathname}?${queryOf(location.search, this.state, { wanted: this.wanted, transcript: this.chosenTranscript })}`
  }

  writeAddress({ push = false } = {}) {
    clearTimeout(this.addressTimer)
    this.addressTimer = null
    if (location.pathname !== this.path) return
    if (push) history.pushState(history.state, "", this.addressNow())
    else history.replaceState(history.state, "", this.addressNow())
    this.tell()
  }

  /** Many changes in a moment are one of the address. */
  writeSoon() {
    if (!this.addressTimer) this.addressTimer = setTimeout(() => this.writeAddress(), ADDRESS_MS)
  }

  /** Python learns where the reader has stopped. */
  tell() {
    clearTimeout(this.selectionTimer)
    this.selectionTimer = setTimeout(() => {
      // A rerun that is asked for here would show this page under the address of the next one.
      if (location.pathname !== this.path) return
      const { episode, step, call } = this.state
      this.component.setStateValue?.("selection", { episode, step, call })
    }, SELECTION_MS)
  }

  // ------------------------------------------------ events

  listen() {
    this.onKey = (event) => this.key(event)
    this.path = location.pathname
    this.onBack = () => location.pathname === this.path && this.open()
    this.onHide = () => this.addressTimer && this.writeAddress()
    document.addEventListener("keydown", this.onKey)
    window.addEventListener("popstate", this.onBack)
    window.addEventListener("pagehide", this.onHide)
  }

  close() {
    this.closed = true
    cancelAnimationFrame(this.lighting)
    globalThis.CSS?.highlights?.delete("found")
    this.onHide()
    document.removeEventListener("keydown", this.onKey)
    window.removeEventListener("popstate", this.onBack)
    window.removeEventListener("pagehide", this.onHide)
    for (const timer of [this.addressTimer, this.selectionTimer, this.followTimer, this.playing]) clearTimeout(timer)
  }

  key(event) {
    const at = event.composedPath()[0]
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
    if (at instanceof HTMLElement && (at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName))) return
    // A button that was reached by keyboard is pressed by the space bar; one that was clicked is not.
    if (event.key === " " && at instanceof Element && at.matches?.("button:focus-visible, a:focus-visible")) return
    const last = (this.episode?.numSteps ?? 1) - 1
    const actions = {
      ArrowRight: () => this.go(this.state.step + 1), l: () => this.go(this.state.step + 1),
      ArrowLeft: () => this.go(this.state.step - 1), h: () => this.go(this.state.step - 1),
      Home: () => this.go(0), End: () => this.go(last),
      j: () => this.sibling(1), k: () => this.sibling(-1),
      n: () => this.group(1), p: () => this.group(-1),
      " ": () => this.play(), "<": () => this.faster(-1), ">": () => this.faster(1),
      i: () => this.jump(this.invalidAfter()),
      "[": () => this.tokenView?.move(-1), "]": () => this.tokenView?.move(1),
      t: () => this.toggleTranscript(),
      m: () => this.show({ prompt: PROMPTS[(PROMPTS.indexOf(this.state.prompt) + 1) % PROMPTS.length] }),
      C: () => this.nextColour(),
      "/": () => this.search(), "?": () => this.help(), Escape: () => this.escape(),
    }
    const action = actions[event.key]
    if (!action || !this.state) return
    event.preventDefault()
    action()
  }

  // ------------------------------------------------ opening

  /** Show what the address names. */
  async open() {
    this.state = stateOf(location.search, { wide: innerWidth >= 1500 })
    this.wanted = this.state.search
    const toMatch = !new URLSearchParams(location.search).has("step")
    this.stop()
    const id = this.state.episode
    if (!id) return this.trouble("The address names no episode.", "Open one from the list of episodes.")
    const opening = (this.opening = Symbol(id))
    try {
      const had = this.episodes.get(id)
      if (!had && !this.episode) this.page.replaceChildren(h("div", { class: "loading", role: "status" }, "Loading the episode…"))
      const episode = had ?? (await new Episode(this.component.data?.api ?? "/api", id).open())
      const neighbours = had?.neighbours ?? (await read(`${episode.base}/neighbours`))
      if (opening !== this.opening || this.closed) return
      episode.neighbours = neighbours
      this.keep(episode)
      this.episode = episode
      this.measure(episode)
      this.state.step = Math.min(this.state.step, Math.max(0, episode.numSteps - 1))
      this.draw({ toMatch })
      this.tell()
      this.follow()
      this.loadAll(episode)
    } catch (error) {
      if (opening === this.opening && !this.closed) this.trouble("This episode cannot be shown.", error.message)
    }
  }

  /** The newest few episodes stay at hand. */
  keep(episode) {
    this.episodes.delete(episode.id)
    this.episodes.set(episode.id, episode)
    if (this.episodes.size > 8) this.episodes.delete(this.episodes.keys().next().value)
  }

  /** What continuations say of the steps: a strip of its own under the advantages. */
  async measure(episode) {
    if (episode.truth) return
    episode.truth = []
    try {
      episode.truth = await read(`${episode.base}/truth`)
    } catch {
      return // the strip is left out
    }
    if (episode.truth.length && episode === this.episode && !this.closed) {
      this.drawStrip()
      this.drawStep()
      this.find(this.wanted)
    }
  }

  /** Everything else, from here outwards, while the page is already used. */
  async loadAll(episode) {
    const here = this.state.step
    await this.look()
    try {
      for (let at = here; at < episode.numSteps && episode === this.episode; at += FAR_STEPS) await episode.load(at, at + FAR_STEPS)
      for (let at = here; at > 0 && episode === this.episode; at -= FAR_STEPS) await episode.load(at - FAR_STEPS, at)
    } catch {
      // What is looked at is asked for again, and says what is wrong.
    }
  }

  /** The texts of the step that is looked at, or what is wrong with them. */
  async look() {
    const { episode } = this
    const { step } = this.state
    try {
      await this.need(episode, step)
    } catch (error) {
      if (episode === this.episode && step === this.state.step && !this.closed) this.stepTrouble(error)
    }
  }

  /** The texts of a step, and of the steps beside it. */
  async need(episode, step) {
    if (!episode.numSteps || episode.steps.has(step)) return
    await episode.load(step - 1, step + NEAR_STEPS)
    if (episode === this.episode && step === this.state.step && !this.closed) this.drawStep()
  }

  trouble(what, how) {
    this.episode = null
    this.page.replaceChildren(
      h("div", { class: "trouble", role: "alert" }, h("b", {}, what), h("p", {}, how),
        h("button", { class: "plain", onclick: () => this.open() }, "Try again"), " ",
        h("a", { href: "runs" }, "All runs")),
    )
  }

  /** While the run goes on: new episodes of the group, and credit as it comes. */
  async follow() {
    clearTimeout(this.followTimer)
    const { episode } = this
    const { summary, trained_training_step } = episode.outline
    const following = (this.following = Symbol(episode.id))
    const isOver = () => following !== this.following || !this.episode || this.closed
    let pause = FOLLOW_MS
    try {
      const run = await read(`${episode.api}/runs/${encodeURIComponent(summary.run_id)}`)
      if (run.summary.status !== "running") return
    } catch {
      pause = 4 * FOLLOW_MS
    }
    if (isOver()) return
    this.followTimer = setTimeout(async () => {
      try {
        if (!document.hidden) await this.refresh(episode, trained_training_step == null && summary.episode_advantage == null)
      } catch {
        // It is asked for again.
      }
      if (!isOver()) this.follow()
    }, pause)
  }

  async refresh(episode, uncredited) {
    const before = JSON.stringify(episode.neighbours)
    episode.neighbours = await read(`${episode.base}/neighbours`)
    if (uncredited) {
      const newer = await new Episode(episode.api, episode.id).open()
      if (newer.outline.summary.episode_advantage != null) {
        newer.neighbours = episode.neighbours
        newer.truth = episode.truth
        this.keep(newer)
        if (episode === this.episode && !this.closed) {
          this.episode = newer
          await this.need(newer, this.state.step)
          this.draw()
          this.loadAll(newer)
        }
        return
      }
    }
    if (before !== JSON.stringify(episode.neighbours) && episode === this.episode) this.drawGroup()
  }

  // ------------------------------------------------ moving

  /** Another step of this episode. */
  go(step, { call = null } = {}) {
    if (!this.episode?.numSteps) return
    const last = this.episode.numSteps - 1
    const next = Math.min(last, Math.max(0, step))
    if (next === this.state.step && call === this.state.call) return
    Object.assign(this.state, { step: next, call })
    this.drawStep()
    this.look()
    this.writeSoon()
  }

  jump(step) {
    if (step != null && step >= 0) this.go(step)
  }

  /** Another episode, from its first step on: an entry in the browser's history. */
  visit(id) {
    if (!id || id === this.state.episode) return
    if (this.addressTimer) this.writeAddress()
    Object.assign(this.state, { episode: id, step: 0, call: null })
    this.writeAddress({ push: true })
    this.open()
  }

  /** The next episode of the group; presses that come while one opens count from there. */
  sibling(by) {
    const members = this.episode?.neighbours?.members ?? []
    const here = members.findIndex((member) => member.episode_id === this.state.episode)
    this.visit(members[here + by]?.episode_id)
  }

  group(by) {
    const near = this.episode?.neighbours
    if (this.episode?.id === this.state.episode) this.visit(by > 0 ? near?.later_group : near?.earlier_group)
  }

  invalidAfter() {
    const valid = this.episode.outline.steps.action_valid
    const later = valid.findIndex((each, step) => !each && step > this.state.step)
    return later >= 0 ? later : valid.indexOf(false)
  }

  /** Other ways of showing the same step. */
  show(change) {
    Object.assign(this.state, change)
    this.writeAddress()
    this.drawStep()
  }

  nextColour() {
    const known = this.colours(this.call())
    this.show({ colour: known[(known.indexOf(this.state.colour) + 1) % known.length] })
  }

  toggleTranscript() {
    this.state.transcript = this.chosenTranscript = !this.state.transcript
    this.writeAddress()
    this.page.classList.toggle("with-transcript", this.state.transcript)
    this.drawTranscript()
  }

  // ------------------------------------------------ playing

  play() {
    if (this.playing) this.stop()
    else {
      if (this.state.step >= (this.episode?.numSteps ?? 0) - 1) this.go(0)
      this.tick()
    }
    this.drawControls()
  }

  tick() {
    const { outline, calls } = this.episode
    const { step } = this.state
    const waited = outline.steps.environment_seconds[step] + calls[step].reduce((sum, call) => sum + call.queue_seconds + call.generate_seconds, 0)
    const pause = ((this.waiting ? waited : 1) * 1000) / this.speed
    this.playing = setTimeout(() => {
      if (this.state.step >= this.episode.numSteps - 1) this.stop()
      else {
        this.go(this.state.step + 1)
        this.tick()
      }
      this.drawControls()
    }, Math.max(15, pause))
  }

  stop() {
    clearTimeout(this.playing)
    this.playing = null
  }

  faster(by) {
    const place = SPEEDS.indexOf(this.speed) + by
    this.speed = SPEEDS[Math.min(SPEEDS.length - 1, Math.max(0, place))]
    this.drawControls()
  }

  // ------------------------------------------------ drawing: the frame

  draw({ toMatch = false } = {}) {
    const { outline } = this.episode
    this.matches = null
    this.strip = h("div", { class: "strip", role: "listbox", "aria-label": "Steps" })
    this.controls = h("div", { class: "controls" })
    this.groupRow = h("div", { class: "group" })
    this.stepPane = h("main", { class: "step" })
    this.factsPane = h("aside", { class: "facts" })
    this.transcriptPane = h("nav", { class: "transcript", "aria-label": "Transcript" })
    this.page.replaceChildren(
      this.header(outline),
      this.groupRow,
      h("div", { class: "bar" }, this.strip, this.controls),
      h("div", { class: "columns" }, this.transcriptPane, this.stepPane, this.factsPane),
    )
    this.page.classList.toggle("with-transcript", this.state.transcript)
    this.page.dataset.episode = this.episode.id
    this.drawGroup()
    this.drawStrip()
    this.drawControls()
    this.drawStep()
    this.drawTranscript()
    this.find(this.wanted, { toMatch })
  }

  header({ summary, environment_version, calls, task_data }) {
    const place = {
      run: summary.run_id, attempt: summary.attempt, phase: summary.phase,
      training_step: summary.training_step, group: summary.group_index,
    }
    const outcome = summary.failed ? `✕ failed: ${words(summary.failure_cause)}` : summary.success ? "✓ solved" : `■ ${words(summary.stop_reason)}`
    const cost = calls.cost_usd.reduce((sum, each) => (each == null ? sum : (sum ?? 0) + each), null)
    const facts = [
      summary.failed ? null : ["return", number(summary.episode_return)],
      ["steps", `${summary.num_steps} of ${summary.horizon}`],
      ["calls", String(summary.num_calls)],
      ["tokens written", summary.num_action_tokens.toLocaleString("en")],
      ["time", seconds(summary.duration_seconds)],
      summary.num_invalid_actions ? ["invalid", String(summary.num_invalid_actions)] : null,
      cost == null ? null : ["cost", `$${cost.toFixed(4)}`],
      ["advantage", signed(summary.episode_advantage)],
      ["environment", `${summary.environment} ${environment_version}`],
      ["task", summary.task_id],
      summary.branched_from && ["continues", h("a", {
        href: address("replay", { episode: summary.branched_from, step: summary.branched_at_step }),
        title: summary.branched_action == null ? "What comes before it was replayed"
          : `What comes before it was replayed, and ${summary.branched_action} was given`,
      }, `another episode from step ${summary.branched_at_step} on`)],
    ].filter(Boolean)
    return h("header", {},
      h("div", { class: "trail" },
        h("a", { href: "runs" }, "Runs"), h("i", {}, "›"),
        h("a", { href: address("run", { run: summary.run_id }) }, summary.run_id), h("i", {}, "›"),
        h("a", { href: address("episodes", { run: summary.run_id }) }, "Episodes"), h("i", {}, "›"),
        h("a", { href: address("group", place) }, `${summary.phase} ${summary.training_step}, group ${summary.group_index}`), h("i", {}, "›"),
        h("span", {}, `episode ${summary.sample_index}${summary.retry ? ` retry ${summary.retry}` : ""}`)),
      h("h1", { dir: "auto" }, summary.goal || summary.task_id),
      h("div", { class: "badges" },
        h("span", { class: `outcome ${summary.failed ? "failed" : summary.success ? "good" : ""}` }, outcome),
        summary.rolled_back && h("span", { class: "warn" }, "rolled back by a resume"),
        summary.retention === "removed" && h("span", { class: "warn" }, "text and tokens removed"),
        facts.map(([name, value]) => h("span", { class: "fact" }, h("i", {}, name), value))),
      summary.failure_message && h("details", { class: "failure", open: true },
        h("summary", {}, `Why it failed: ${words(summary.failure_cause)}`), h("pre", {}, summary.failure_message)),
      task_data && h("details", { class: "task" }, h("summary", {}, "Task data"), h("pre", {}, task_data)))
  }

  drawGroup() {
    const { members, earlier_group, later_group } = this.episode.neighbours
    const step = (label, id, key) =>
      h("button", { class: "plain", disabled: !id, title: `${label} (${key})`, "aria-label": label, onclick: () => this.visit(id) }, label)
    this.groupRow.replaceChildren(
      step("‹ group", earlier_group, "p"),
      h("div", { class: "members" }, members.map((member) => {
        const here = member.episode_id === this.episode.id
        const mark = member.failed ? "✕" : member.success ? "✓" : "■"
        const link = h("a", {
          class: `member ${member.failed ? "failed" : member.success ? "good" : ""}${here ? " here" : ""}`,
          href: address("replay", { episode: member.episode_id }),
          "aria-current": here ? "page" : null,
          title: `${many(member.num_steps, "step")}; k and j go through the group`,
          onclick: (event) => {
            if (event.ctrlKey || event.metaKey || event.shiftKey) return
            event.preventDefault()
            this.visit(member.episode_id)
          },
        }, h("i", {}, `${mark} ${member.sample_index}${member.retry ? `·${member.retry}` : ""}`), member.failed ? "failed" : number(member.episode_return))
        return link
      })),
      step("group ›", later_group, "n"),
    )
  }

  drawStrip() {
    const { steps, calls, summary, labels } = this.episode.outline
    const rewards = reach(steps.reward)
    const advantages = reach(steps.advantage)
    const credited = steps.advantage.some((value) => value != null)
    const pictured = steps.pictures.some((each) => each.length)
    const split = new Set(calls.step_index.filter((_, place) => calls.split_reason[place]))
    const labelled = new Set(labels.map((label) => label.step_index))
    const truths = (this.episode.truth ?? []).map((of) => ({
      name: `truth (${of.continued_by})`,
      most: reach(of.steps.flatMap(({ advantage }) => [advantage.low, advantage.high])),
      steps: new Map(of.steps.map((each) => [each.step_index, each])),
    }))
    const measured = ({ steps, most }, step) => {
      const found = steps.get(step)
      if (!found) return h("span", { class: "half unmeasured" })
      const { estimate, low, high } = found.advantage
      return h("span", { class: `half${found.has_effect ? "" : " unsure"}` },
        estimate ? h("b", { class: tone(estimate), style: `--share:${Math.abs(estimate) / most}` }) : null,
        h("u", { style: `--low:${low / most};--high:${high / most}` }))
    }
    const bar = (value, most) =>
      h("span", { class: "half" }, value ? h("b", { class: tone(value), style: `--share:${Math.abs(value) / most}` }) : null)
    this.stepButtons = steps.reward.map((reward, step) => {
      const advantage = steps.advantage[step]
      const says = [
        `step ${step}: ${steps.action[step]}`, `reward ${signed(reward)}`,
        advantage == null ? null : `advantage ${signed(advantage)}`,
        ...truths.map(({ name, steps: of }) => of.has(step) && `${name} ${interval(of.get(step).advantage)}`),
        steps.action_valid[step] ? null : "invalid action", split.has(step) ? "a row begins here" : null,
      ].filter(Boolean).join("\n")
      const [picture] = steps.pictures[step]
      return h("button", {
        class: `tick${split.has(step) ? " split" : ""}${steps.trained[step] ? " trained" : ""}`,
        role: "option", tabindex: "-1", title: says, "aria-label": says, onclick: () => this.go(step),
      },
        pictured && h("span", { class: "thumb" }, picture && h("img", { src: this.episode.picture(picture), loading: "lazy", alt: "" })),
        bar(reward, rewards),
        credited && bar(advantage, advantages),
        truths.map((truth) => measured(truth, step)),
        h("span", { class: "marks" }, steps.action_valid[step] ? "" : "×", labelled.has(step) ? "•" : ""))
    })
    const most = (value) => `±${number(value, 2)}`
    this.strip.style.setProperty("--steps", this.stepButtons.length)
    this.strip.replaceChildren(
      h("div", { class: "axes", "aria-hidden": "true" },
        pictured && h("span", { class: "thumb" }, "shown"),
        h("span", { class: "half" }, "reward", h("i", {}, steps.reward.some(Boolean) ? most(rewards) : "all 0")),
        credited && h("span", { class: "half" }, "advantage", h("i", {}, steps.advantage.some(Boolean) ? most(advantages) : "all 0")),
        truths.map((truth) => h("span", { class: "half" }, truth.name, h("i", {}, most(truth.most)))),
        h("span", { class: "marks" }, "× invalid")),
      h("div", { class: "ticks" }, this.stepButtons,
        h("span", { class: `end ${summary.failed ? "failed" : summary.success ? "good" : ""}`, title: summary.failed ? "it failed here" : words(summary.success ? "solved" : summary.stop_reason) },
          summary.failed ? "✕" : summary.success ? "✓" : "■")),
    )
  }

  drawControls() {
    if (!this.episode) return
    const { steps, summary } = this.episode.outline
    const last = this.episode.numSteps - 1
    const { step } = this.state
    const credit = steps.advantage.map((value) => value ?? 0)
    const credited = credit.some(Boolean)
    const button = (label, title, action, off) =>
      h("button", { class: "plain", title, "aria-label": title, disabled: off || last < 0, onclick: action }, label)
    const jump = (label, to) => h("button", { class: "jump", disabled: to == null || to < 0, onclick: () => this.jump(to) }, label)
    const was = this.controls.querySelector("input")
    if (was && this.root.activeElement === was) return
    this.controls.replaceChildren(
      h("div", { class: "buttons" },
        button("|‹", "First step (Home)", () => this.go(0), step === 0),
        button("‹", "Step before (← or h)", () => this.go(this.state.step - 1), step === 0),
        h("button", { class: "play", title: "Play, pause (space)", "aria-label": this.playing ? "Pause" : "Play", onclick: () => this.play() }, this.playing ? "❚❚" : "▶"),
        button("›", "Step after (→ or l)", () => this.go(this.state.step + 1), step >= last),
        button("›|", "Last step (End)", () => this.go(last), step >= last),
        h("output", { class: "where" }, last < 0 ? "no steps" : h("b", {}, String(step)), last < 0 ? "" : ` of 0–${last}`)),
      h("div", { class: "buttons" },
        button("−", "Slower (<)", () => this.faster(-1), this.speed === SPEEDS[0]),
        h("span", { class: "speed" }, `${this.speed}×`),
        button("+", "Faster (>)", () => this.faster(1), this.speed === SPEEDS.at(-1)),
        h("button", {
          class: "toggle", "aria-pressed": String(this.waiting), title: "Wait at each step as long as it took, or a second",
          onclick: () => { this.waiting = !this.waiting; this.drawControls() },
        }, this.waiting ? "as long as it took" : "1 s a step")),
      h("div", { class: "buttons jumps" },
        jump("first invalid", steps.action_valid.indexOf(false)),
        jump("highest advantage", credited ? credit.indexOf(Math.max(...credit)) : null),
        jump("lowest", credited ? credit.indexOf(Math.min(...credit)) : null),
        summary.failed && jump("where it failed", last)),
      h("div", { class: "buttons right" },
        h("span", { class: "search" },
          h("input", { type: "search", placeholder: "Search /", "aria-label": "Search the episode", value: this.wanted, oninput: (event) => this.find(event.target.value), onkeydown: (event) => this.searchKey(event) }),
          h("i", { class: "hits", role: "status" }, this.hits())),
        h("button", { class: "toggle", "aria-pressed": String(this.state.transcript), title: "Transcript (t)", onclick: () => { this.toggleTranscript(); this.drawControls() } }, "Transcript"),
        button("?", "Keys (?)", () => this.help())),
    )
  }

  // ------------------------------------------------ drawing: a step

  call() {
    const calls = this.episode.calls[this.state.step] ?? []
    const act = this.episode.outline.steps.act_call_index[this.state.step]
    return calls[Math.min(this.state.call ?? act ?? calls.length - 1, calls.length - 1)] ?? null
  }

  drawStep() {
    const { episode, state } = this
    this.stepButtons.forEach((button, step) => {
      const here = step === state.step
      if (here !== button.classList.contains("here")) button.classList.toggle("here", here)
      if (here) button.setAttribute("aria-selected", "true")
      else button.removeAttribute("aria-selected")
    })
    this.keepInSight(this.stepButtons[state.step])
    this.drawControls()
    this.page.dataset.step = state.step
    if (!episode.numSteps) {
      this.stepPane.replaceChildren(h("p", { class: "note" }, "The episode failed before its first step was finished."))
      this.factsPane.replaceChildren()
      return
    }
    const texts = episode.steps.get(state.step)
    this.page.dataset.drawn = texts ? `${episode.id}#${state.step}` : ""
    if (!texts) {
      this.stepPane.replaceChildren(h("div", { class: "loading", role: "status" }, `Loading step ${state.step}…`))
      this.factsPane.replaceChildren(...this.facts(null))
      return
    }
    this.tokenView = null
    this.stepPane.replaceChildren(...this.stepParts(texts))
    this.factsPane.replaceChildren(...this.facts(texts))
    for (const box of this.stepPane.querySelectorAll(".newest-last")) box.scrollTop = box.scrollHeight
    this.markTranscript()
    this.light()
  }

  stepTrouble(error) {
    this.stepPane.replaceChildren(h("div", { class: "trouble", role: "alert" }, h("b", {}, "This step cannot be read."), h("p", {}, error.message),
      h("button", { class: "plain", onclick: () => { this.drawStep(); this.look() } }, "Try again")))
  }

  keepInSight(tick) {
    const ticks = tick?.parentElement
    if (!ticks || ticks.scrollWidth <= ticks.clientWidth) return
    ticks.scrollLeft = tick.offsetLeft - ticks.clientWidth / 2
  }

  section(title, aside, ...body) {
    return h("section", {}, h("h2", {}, title, h("span", { class: "aside" }, aside)), body)
  }

  choice(name, values, now, change) {
    return h("span", { class: "choice", role: "group", "aria-label": name },
      values.map(([value, label]) => h("button", { "aria-pressed": String(value === now), onclick: () => change(value) }, label)))
  }

  stepParts(texts) {
    const call = this.call()
    const words = call && texts.calls.find((each) => each.call_index === call.call_index)
    return [
      this.observation(texts),
      this.callTabs(texts),
      call && this.replyPart(call, words),
      this.actionPart(texts),
      this.state.step === this.episode.numSteps - 1 && this.episode.finalObservation != null &&
        this.section("Final observation", null, this.pictures(this.episode.outline.final_pictures), observed(this.episode.finalObservation)),
      call && this.promptPart(call, words),
    ].filter(Boolean)
  }

  pictures(hashes) {
    if (!hashes.length) return null
    return h("div", { class: "pictures" }, hashes.map((hash) => h("a", { href: this.episode.picture(hash), target: "_blank", title: "Open the picture" }, h("img", { src: this.episode.picture(hash), alt: "picture of the observation" }))))
  }

  observation(texts) {
    const { raw } = this.state
    const shown = texts.observation
    return this.section("Observation",
      this.choice("How it is shown", [[false, "as shown"], [true, "raw"]], raw, (value) => this.show({ raw: value })),
      this.pictures(texts.pictures.map((each) => each.content_hash)),
      shown == null ? h("p", { class: "note" }, "Removed by the run's retention, which keeps numbers and actions.")
        : raw ? h("pre", { class: "text", dir: "auto" }, shown) : observed(shown))
  }

  callTabs(texts) {
    const calls = this.episode.calls[this.state.step]
    if (!calls.length) return this.section("Calls", null, h("p", { class: "note" }, "No model chose the action of this step."))
    if (calls.length === 1 && calls[0].purpose === "act" && !calls[0].agent) return null
    const now = this.call()
    const act = this.episode.outline.steps.act_call_index[this.state.step]
    return h("div", { class: "calls", role: "tablist", "aria-label": "Calls of this step" }, calls.map((call) =>
      h("button", {
        role: "tab", "aria-selected": String(call === now), class: call.call_index === act ? "act" : "",
        onclick: () => this.go(this.state.step, { call: call.call_index }),
      }, h("b", {}, call.purpose), [call.agent, call.model].filter(Boolean).map((each) => ` · ${each}`).join(""),
        call.continuation === "forked" ? " ⑂" : "", texts.calls[call.call_index]?.tool_calls.length ? " ⚒" : "")))
  }

  // ------------------------------------------------ drawing: the prompt

  promptPart(call, texts) {
    const changes = this.episode.changes.get(`${call.step_index}/${call.call_index}`)
    const says = [
      call.num_prompt_tokens == null ? null : many(call.num_prompt_tokens, "token"),
      call.dropped_exchanges ? `${many(call.dropped_exchanges, "exchange")} left out to make it fit` : null,
      texts.recalled_steps.length ? `recalls step${texts.recalled_steps.length > 1 ? "s" : ""} ${texts.recalled_steps.join(", ")}` : null,
    ].filter(Boolean).join(" · ")
    const aside = [
      h("span", {}, says), this.changeCounts(changes),
      this.choice("How the prompt is shown", [["changes", "changes"], ["messages", "messages"], ["tokens", "tokens"]], this.state.prompt, (prompt) => this.show({ prompt })),
    ]
    const gone = texts.reply == null && !texts.prompt.length
    const body = gone ? h("p", { class: "note" }, "Removed by the run's retention, which keeps numbers and actions.")
      : this.state.prompt === "tokens" ? this.promptTokens(call, changes)
      : this.promptMessages(texts, changes, this.state.prompt === "changes")
    const tools = texts.tools == null ? [] : this.episode.tools.get(texts.tools) ?? []
    const asked = new Set(texts.tool_calls.map((each) => each.name))
    return this.section("Prompt", aside, body, tools.length > 0 && h("details", { class: "tools" },
      h("summary", {}, `${many(tools.length, "tool")} offered`),
      tools.map((tool) => h("div", { class: asked.has(tool.name) ? "tool asked" : "tool" }, h("b", {}, tool.name), " ", tool.description, h("pre", {}, tool.parameters)))))
  }

  /** How many tokens were kept, dropped and added. */
  changeCounts(changes) {
    if (!changes?.tokens || changes.earlier_step_index == null) return null
    const sum = { kept: 0, dropped: 0, added: 0 }
    for (const [kind, count] of changes.tokens) sum[kind] += count
    return h("span", { class: "counts", title: `tokens, since the prompt of step ${changes.earlier_step_index}` },
      h("b", { class: "kept" }, `= ${sum.kept}`), h("b", { class: "dropped" }, `− ${sum.dropped}`), h("b", { class: "added" }, `+ ${sum.added}`))
  }

  promptMessages(texts, changes, folded) {
    const prompt = texts.prompt.map((key) => this.episode.messages.get(key))
    const first = !changes || changes.earlier_step_index == null
    const prefix = this.episode.reading?.reply_prefix
    const parts = first ? prompt.map((message) => this.message(message, "")) : changes.messages.flatMap((change) => this.changed(change, prompt, folded))
    return h("div", { class: "messages newest-last" },
      !first && h("p", { class: "note" }, `Against the prompt of step ${changes.earlier_step_index}${changes.earlier_step_index === this.state.step ? `, call ${changes.earlier_call_index}` : ""}.`),
      parts,
      prefix && h("div", { class: "message assistant" }, h("span", { class: "role" }, "assistant, begun by the prompt"), h("div", { class: "text" }, prefix)))
  }

  /** Messages of either prompt, as what became of them. */
  changed(change, prompt, folded) {
    if (change.kind === "kept") {
      const kept = prompt.slice(change.later, change.later + change.num_messages)
      if (!folded) return kept.map((message) => this.message(message, "kept"))
      const size = kept.reduce((sum, message) => sum + textOf(message).length, 0)
      const box = h("details", { class: "fold" }, h("summary", {}, `${many(kept.length, "message")} kept · ${many(size, "character")}`))
      box.ontoggle = () => box.children.length === 1 && box.append(...kept.map((message) => this.message(message, "kept")))
      return box
    }
    if (change.kind === "changed") return this.message(prompt[change.later], "changed", this.lines(change, textOf(prompt[change.later]), folded))
    return change.kind === "dropped" && !folded ? [] : this.message(change.message, change.kind)
  }

  /** The lines of a message that changed; what stayed is folded, but for its ends. */
  lines(change, now, folded) {
    const lines = now.split("\n")
    let place = 0
    return change.lines.flatMap(([kind, count, text]) => {
      if (kind === "dropped") return folded ? h("div", { class: "line dropped" }, text) : []
      const body = lines.slice(place, place + count)
      place += count
      const whole = h("div", { class: `line ${kind}` }, body.join("\n"))
      if (kind === "added" || !folded || count <= FOLDED_LINES) return whole
      return h("details", { class: "fold" }, h("summary", {}, `${many(count, "line")} kept`), whole)
    })
  }

  message(message, kind, lines) {
    const mark = { added: "+ added", dropped: "− dropped", changed: "± changed" }[kind]
    return h("div", { class: `message ${message.role} ${kind}` },
      h("span", { class: "role" }, message.role, message.tool_call_id && h("i", {}, ` answers ${message.tool_call_id}`), mark && h("em", { class: kind }, mark)),
      message.reasoning && h("div", { class: "thoughts", dir: "auto" }, message.reasoning),
      lines ? h("div", { class: "text", dir: "auto" }, lines)
        : message.parts.map((part) => (typeof part === "string" ? part && h("div", { class: "text", dir: "auto" }, part) : this.pictures([part.content_hash]))),
      lines && message.parts.filter((part) => typeof part !== "string").map((part) => this.pictures([part.content_hash])),
      this.toolCalls(message.tool_calls))
  }

  toolCalls(calls) {
    return calls.map((call) => h("div", { class: "asks" }, h("b", {}, `⚒ ${call.name}`), h("code", {}, call.arguments), h("i", {}, call.id)))
  }

  promptTokens(call, changes) {
    if (call.num_prompt_tokens == null) return h("p", { class: "note" }, "No tokens recorded: no engine of this run read the prompt.")
    const box = h("div", {}, h("div", { class: "loading", role: "status" }, "Loading tokens…"))
    const fill = (prompt) => {
      const says = h("output", { class: "inspector" }, "Point at a token, or tap it.")
      const view = new TokenView({
        ...prompt,
        runs: changes?.earlier_step_index == null ? null : changes.tokens,
        tall: true,
        describe: (token, size) => prompt.ids.slice(token, token + size).map((id, place) => [["token", id], ["place", token + place], ["text", quoted(prompt.texts, prompt.sizes, token)]]),
        onPick: (tokens) => says.replaceChildren(...inspected(tokens)),
        onBuilt: () => this.light(),
      })
      view.element.classList.add("newest-last")
      box.replaceChildren(view.element, says)
      view.element.scrollTop = view.element.scrollHeight
      this.page.dataset.tokens = `${this.episode.id}#${call.step_index}/${call.call_index}`
    }
    const had = this.episode.prompts.get(`${call.step_index}/${call.call_index}`)
    if (had) fill(had)
    else {
      const { episode } = this
      episode.prompt(call).then(
        (prompt) => episode === this.episode && box.isConnected && fill(prompt),
        (error) => box.replaceChildren(h("p", { class: "note" }, error.message)),
      )
    }
    return box
  }

  // ------------------------------------------------ drawing: the reply

  colours(call) {
    const texts = this.episode.steps.get(this.state.step)?.calls.find((each) => each.call_index === call?.call_index)
    return coloursOf(texts?.tokens, call)
  }

  replyPart(call, texts) {
    const says = [
      call.num_action_tokens == null ? null : many(call.num_action_tokens, "token"),
      { length: "cut by the limit", tool_calls: "asks for tools", aborted: "interrupted" }[call.finish_reason],
    ].filter(Boolean).join(" · ")
    if (texts.reply == null) return this.section("Reply", says, h("p", { class: "note" }, "Removed by the run's retention, which keeps numbers and actions."))
    const { tokens } = texts
    if (!tokens) {
      const why = call.num_action_tokens == null ? "No tokens recorded: no engine of this run wrote the reply." : "Its tokens and logprobs were pruned."
      return this.section("Reply", says, wrote(texts) && h("div", { class: "text reply", dir: "auto" }, wrote(texts)), this.toolCalls(texts.tool_calls), h("p", { class: "note" }, why))
    }
    const known = this.colours(call)
    const colour = known.includes(this.state.colour) ? this.state.colour : known[0]
    const scale = SCALES[colour]
    const credit = { advantage: call.advantage, inLoss: call.trained && this.episode.outline.steps.trained[this.state.step] }
    const nothing = colour === "entropy" && tokens.policy_entropies == null && noEntropy(tokens)
    const inspector = h("output", { class: "inspector", "aria-live": "polite" }, "Point at a token, tap it, or go through them with [ and ].")
    this.tokenView = new TokenView({
      ...tokens,
      onBuilt: () => this.light(),
      paint: (token, size) => (nothing ? "" : paintOf(colour, tokens, token, size, credit)),
      describe: (token, size) => Array.from({ length: size }, (_, place) => factsOf(tokens, token + place, credit)),
      onPick: (picked) => inspector.replaceChildren(...inspected(picked)),
    })
    return this.section("Reply",
      [h("span", {}, says), this.choice("Colour of the tokens", known.map((each) => [each, each === "gap" ? "learner − sampler" : each]), colour, (value) => this.show({ colour: value }))],
      this.tokenView.element, inspector,
      nothing ? h("p", { class: "note" }, nothing) : h("div", { class: "legend" }, h("span", {}, scale.title), scale.labels.map((label, place) => h("span", { class: `t ${scale.prefix}${place}` }, label))),
      this.toolCalls(texts.tool_calls))
  }

  actionPart(texts) {
    const valid = !texts.invalid
    const judge = { parser: "The reply was refused", environment: "The environment refused", unknown: "Why is not known" }[texts.invalid?.judge]
    const reward = this.episode.outline.steps.reward[this.state.step]
    return this.section("Action", null,
      h("div", { class: `action ${valid ? "" : "invalid"}` },
        h("code", { dir: "auto" }, texts.action || "(empty)"),
        h("span", { class: `verdict ${valid ? "good" : "bad"}` }, valid ? "✓ valid" : "× invalid"),
        h("span", { class: `paid ${tone(reward)}` }, `reward ${signed(reward)}`)),
      !valid && h("p", { class: "why" }, h("b", {}, judge), `: ${texts.invalid.reason}.`))
  }

  // ------------------------------------------------ drawing: facts

  facts(texts) {
    const { episode, state } = this
    const step = episode.step(state.step)
    const call = this.call()
    const words = texts?.calls.find((each) => each.call_index === call?.call_index)
    return [
      this.table("Credit", step.trained ? "trained" : "not trained", [
        ["Reward", signed(step.reward), tone(step.reward)],
        ["Shaped reward", signed(step.shaped_reward), "", "What returns are made of: the reward, shaped and less the penalties that lower returns"],
        step.value == null ? null : ["Value", number(step.value), "", "The critic's"],
        ["Return-to-go", number(step.return_to_go), "", "Discounted sum of the shaped rewards from this step on"],
        ["Episode part", signed(step.episode_advantage), "", "How the whole episode did against its group"],
        ["Step part", signed(step.step_advantage), "", "How it went on from here, against other steps taken in the same state"],
        ["Advantage", signed(step.advantage), `total ${tone(step.advantage)}`, "Both parts combined, less the penalty of an invalid action if that is on the action, as the loss used it"],
        ["Loss weight of a token", step.trained ? number(step.loss_weight, 5) : "–", "", "A dash: the step was not in the loss"],
      ]),
      this.waterfall(step),
      ...(episode.truth ?? []).map((truth) => this.truthFacts(truth)),
      call && this.table("Call", callName(call), this.callFacts(step, call, words)),
      texts?.admissible_actions && this.section("Admissible actions", String(texts.admissible_actions.length),
        h("div", { class: "admissible" }, texts.admissible_actions.map((action) => h("code", { class: action === texts.action ? "chosen" : "" }, action)))),
      texts && this.section("Copy this step", null, h("div", { class: "buttons" },
        [["messages", () => this.asMessages(words)], ["curl", () => this.asCurl(words)], ["test", () => this.asTest(texts, words)], ["link", () => location.href]].map(([name, make]) =>
          h("button", { class: "plain", disabled: !words && name !== "link", onclick: (event) => this.copy(event.currentTarget, make()) }, name)))),
    ].filter(Boolean)
  }

  /** What continuations by one policy say of this step. */
  truthFacts({ continued_by, discount, steps }) {
    const found = steps.find((each) => each.step_index === this.state.step)
    return found && this.table("Truth", `continued by ${continued_by}`, [
      ["V", interval(found.value), "", "Mean discounted return where whoever goes on chooses the action, and its interval of 95 %"],
      ["Q", interval(found.action_value), "", "The same once the stored action is taken"],
      ["Q − V", interval(found.advantage), `total ${found.has_effect ? tone(found.advantage.estimate) : ""}`, "The true advantage; without colour where its interval holds 0"],
      ["Continuations", String(found.advantage.num_continuations), "", `Of both kinds; discount ${number(discount)}`],
    ])
  }

  table(title, aside, rows) {
    return this.section(title, aside, h("table", {}, rows.filter(Boolean).map(([name, value, css, explained]) =>
      h("tr", { class: css ?? "", title: explained }, h("th", {}, name), h("td", {}, value)))))
  }

  callFacts(step, call, texts) {
    const prompt = texts?.prompt.map((key) => this.episode.messages.get(key)) ?? []
    const changes = this.episode.changes.get(`${call.step_index}/${call.call_index}`)
    return callFacts({
      step, call, texts,
      several: this.episode.calls[this.state.step].length > 1,
      isLast: this.state.step + 1 >= this.episode.numSteps,
      cured: cure(changes, prompt),
    })
  }

  /** Where the time of the step went, and whether that was unusual. */
  waterfall(step) {
    const bars = timesOf(this.episode.calls[this.state.step], step.environment_seconds)
    const total = bars.reduce((sum, bar) => sum + bar[1], 0)
    const slow = slowness(bars, this.totals())
    let begin = 0
    return this.section("Time", seconds(total),
      h("div", { class: "waterfall" }, bars.filter((bar) => bar[1] > 0 || bar[0] === "environment").map(([kind, length, title]) => {
        const row = h("div", { class: `row ${kind}`, title: `${title}: ${seconds(length)}` },
          h("span", {}, kind), h("span", { class: "track" }, h("b", { style: `--from:${total ? begin / total : 0};--size:${total ? length / total : 0}` })), h("i", {}, seconds(length)))
        begin += length
        return row
      })),
      slow && h("p", { class: "why" }, h("b", {}, slow[0]), slow[1]))
  }

  totals() {
    this.episode.seconds ??= this.episode.outline.steps.environment_seconds.map((waited, step) =>
      this.episode.calls[step].reduce((sum, call) => sum + call.queue_seconds + call.generate_seconds, waited))
    return this.episode.seconds
  }

  // ------------------------------------------------ copying

  chat(texts) {
    return chat(texts.prompt.map((key) => this.episode.messages.get(key)), {
      prefix: this.episode.reading?.reply_prefix,
      picture: (hash) => new URL(this.episode.picture(hash), location.href).href,
    })
  }

  asMessages(texts) {
    return JSON.stringify(this.chat(texts), null, 2)
  }

  asCurl(texts) {
    const tools = texts.tools == null ? [] : this.episode.tools.get(texts.tools) ?? []
    return asCurl(this.chat(texts), { model: this.call().model, tools, prefix: this.episode.reading?.reply_prefix })
  }

  asTest(texts, call) {
    const { id: episode, reading } = this.episode
    return asTest({ episode, step: this.state.step, texts, reply: call.reply, reading })
  }

  async copy(button, text) {
    const name = button.textContent
    try {
      await navigator.clipboard.writeText(text)
    } catch {
      const area = h("textarea", {}, text) // where the clipboard may not be written
      this.page.append(area)
      area.select()
      document.execCommand("copy")
      area.remove()
    }
    this.copied = text
    button.textContent = "copied"
    setTimeout(() => (button.textContent = name), 1200)
  }

  // ------------------------------------------------ transcript and search

  async drawTranscript() {
    if (!this.state.transcript) return
    const { episode } = this
    if (this.transcriptPane.dataset.of === episode.id) return this.markTranscript()
    this.transcriptPane.dataset.of = episode.id
    this.transcriptPane.replaceChildren(h("div", { class: "loading" }, "Loading the transcript…"))
    try {
      const steps = await episode.transcript()
      if (episode !== this.episode) return
      this.transcriptPane.replaceChildren(...steps.map((step) => this.transcriptStep(step)))
      this.markTranscript()
      this.light()
    } catch (error) {
      if (episode !== this.episode) return
      delete this.transcriptPane.dataset.of
      this.transcriptPane.replaceChildren(h("p", { class: "note" }, error.message),
        h("button", { class: "plain", onclick: () => this.drawTranscript() }, "Try again"))
    }
  }

  transcriptStep(step) {
    const seen = step.observation
    return h("article", { onclick: () => getSelection().isCollapsed && this.go(step.step_index) },
      h("header", {}, h("b", {}, `step ${step.step_index}`), !step.action_valid && h("em", {}, "× invalid"), h("span", { class: tone(step.reward) }, step.reward ? signed(step.reward) : "")),
      seen && h("div", { class: "seen", dir: "auto" }, seen),
      step.pictures.length > 0 && h("div", { class: "pictures small" }, step.pictures.map((each) => h("img", { src: this.episode.picture(each.content_hash), alt: "", loading: "lazy" }))),
      step.calls.map((call) => [
        // A message that only wraps the observation has nothing new to read.
        call.messages.filter((message) => message.role !== "user" || !seen || !textOf(message).includes(seen)).map((message) =>
          h("details", { class: `said ${message.role}` }, h("summary", {}, `${message.role} · ${many(textOf(message).length, "character")}`), message.reasoning && h("div", { class: "thoughts", dir: "auto" }, message.reasoning), h("div", { dir: "auto" }, textOf(message)), this.toolCalls(message.tool_calls))),
        h("div", { class: "wrote", dir: "auto" }, (call.purpose !== "act" || call.agent) && h("i", {}, callName(call)), wrote(call)),
        this.toolCalls(call.tool_calls),
      ]))
  }

  markTranscript() {
    if (!this.state.transcript) return
    const entries = [...this.transcriptPane.querySelectorAll(":scope > article")]
    entries.forEach((entry, step) => {
      entry.classList.toggle("here", step === this.state.step)
      entry.classList.toggle("match", Boolean(this.matches?.includes(step)))
    })
    const here = entries[this.state.step]
    if (here) this.transcriptPane.scrollTop = here.offsetTop - this.transcriptPane.offsetTop - 60
  }

  search() {
    const input = this.controls.querySelector("input")
    input?.focus()
    input?.select()
  }

  /** Mark the steps that have all the words, here or in their prompt; `toMatch`: go to the first. */
  async find(wanted, { toMatch = false } = {}) {
    if (wanted !== this.wanted) this.writeSoon()
    this.wanted = wanted
    const { episode } = this
    const from = this.state.step
    const phrases = sought(wanted)
    const says = (text) => (this.controls.querySelector(".hits").textContent = text)
    let steps = []
    try {
      if (phrases.length) steps = await episode.terms()
    } catch (error) {
      return says(error.message)
    }
    if (this.wanted !== wanted || episode !== this.episode || this.closed) return
    this.matches = phrases.length ? stepsWith(phrases, steps) : null
    this.stepButtons.forEach((button, step) => button.classList.toggle("match", Boolean(this.matches?.includes(step))))
    this.markTranscript()
    this.light()
    says(this.hits())
    if (toMatch && this.matches?.length && from === this.state.step && !this.matches.includes(from)) this.go(this.matches[0])
  }

  /** Light the words that are looked for, wherever they are drawn; no element changes for it. */
  light() {
    if (!globalThis.CSS?.highlights || this.closed) return
    cancelAnimationFrame(this.lighting)
    this.lighting = requestAnimationFrame(() => {
      const phrases = sought(this.wanted)
      const ranges = phrases.length ? [this.stepPane, this.transcriptPane].flatMap((pane) => blocksOf(pane).flatMap((block) => placesIn(block, phrases))) : []
      CSS.highlights.set("found", new Highlight(...ranges.slice(0, MOST_LIT)))
    })
  }

  hits() {
    return this.matches ? (this.matches.length ? many(this.matches.length, "step") : "nowhere") : ""
  }

  searchKey(event) {
    event.stopPropagation()
    if (event.key === "Escape") {
      event.target.blur()
      this.drawControls()
    }
    if (event.key !== "Enter" || !this.matches?.length) return
    const { step } = this.state
    const next = event.shiftKey ? [...this.matches].reverse().find((each) => each < step) : this.matches.find((each) => each > step)
    this.go(next ?? this.matches.at(event.shiftKey ? -1 : 0))
    this.controls.querySelector(".hits").textContent = `${this.hits()}, now at ${this.state.step}`
  }

  help() {
    if (this.escape()) return
    this.dialog = h("div", { class: "help", role: "dialog", "aria-label": "Keys", onclick: () => this.escape() },
      h("div", {}, h("h2", {}, "Keys"), h("table", {}, HELP.map(([keys, what]) => h("tr", {}, h("th", {}, keys), h("td", {}, what)))), h("p", { class: "note" }, "Esc or a click closes this.")))
    this.page.append(this.dialog)
  }

  escape() {
    const was = this.dialog
    was?.remove()
    this.dialog = null
    return Boolean(was)
  }
}

/** Texts that are read as one: the text nodes of an element, of a line of an observation, of all tokens of a reply. */
function blocksOf(pane) {
  const blocks = new Map()
  const walker = document.createTreeWalker(pane, NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const node = walker.currentNode
    if (node.parentElement.matches(".newline")) continue
    const block = node.parentElement.closest(".tokens, .observed div:not(.grid)") ?? node.parentElement
    if (!blocks.has(block)) blocks.set(block, [])
    blocks.get(block).push(node)
  }
  return [...blocks.values()]
}

/** Where the text of these nodes has one of the phrases. */
function placesIn(nodes, phrases) {
  const text = nodes.map((node) => node.data).join("")
  const ends = []
  for (const node of nodes) ends.push((ends.at(-1) ?? 0) + node.length)
  const at = (offset, opens) => {
    const place = ends.findIndex((end) => (opens ? offset < end : offset <= end))
    return [nodes[place], offset - (ends[place - 1] ?? 0)]
  }
  return placesOf(phrases, text).map(([first, last]) => {
    const range = new Range()
    range.setStart(...at(first, true))
    range.setEnd(...at(last, false))
    return range
  })
}

function inspected(tokens) {
  return tokens.map((facts) => h("div", {}, facts.map(([name, value]) => h("span", {}, h("i", {}, name), String(value)))))
}

// ---------------------------------------------------------------- Streamlit

const instances = new WeakMap()

export default function (component) {
  const root = component.parentElement
  const had = instances.get(root)
  if (had) had.update(component)
  else instances.set(root, new Replay(root, component))
  return () => {
    instances.get(root)?.close()
    instances.delete(root)
  }
}
