/* An episode that a person plays.

   A press is sent with the number of its episode and step, and again after a while if the step still
   waits, so that none is lost and none acts twice. Arrows and letters that are pressed while the
   environment works wait for the next step; all text goes in as text. */

import { ARROWS, number, offered } from "./play_actions.mjs";

const AGAIN_MS = 2500;
const MOST_WAITING = 8;
const WAIT_MS = 1000; // a shorter wait needs no words

function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const SHOWN_KEYS = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→" };

class Play {
  constructor(root) {
    this.waiting = [];
    this.sent = null;
    this.onKey = (event) => this.press(event);
    document.addEventListener("keydown", this.onKey);
    this.input = h("input", {
      type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false", dir: "auto",
      "aria-label": "Action", maxlength: "100000", oninput: () => this.filter(), onkeydown: (event) => this.typed(event),
    });
    this.send = h("button", { type: "submit", class: "send" }, "Act");
    this.form = h("form", { onsubmit: (event) => { event.preventDefault(); this.act(this.input.value); } }, this.input, this.send);
    this.pictures = h("div", { class: "pictures" });
    this.text = h("div", { class: "text", dir: "auto", tabindex: "0", role: "log", "aria-live": "polite", "aria-label": "Observation" });
    this.buttons = h("div", { class: "buttons", role: "group", "aria-label": "Admissible actions" });
    this.hint = h("p", { class: "muted" });
    this.wait = h("p", { class: "wait", role: "timer", "aria-label": "What is waited for", hidden: true });
    this.clock = window.setInterval(() => this.drawWait(), 250);
    this.outcome = h("div", { class: "outcome", role: "status" });
    this.facts = h("dl", {});
    this.leave = h("button", { type: "button", class: "leave", onclick: () => this.component.setTriggerValue("leave", true) }, "Give up");
    this.turns = h("ol", { class: "turns", reversed: true });
    this.prompt = h("div", {});
    this.acting = h("div", { class: "acting" }, this.buttons, this.form, this.hint);
    this.page = h("div", { class: "play" },
      h("div", { class: "main" }, this.outcome, this.pictures, this.text, this.wait, this.acting,
        h("details", {}, h("summary", {}, "The prompt that a model would get"), this.prompt)),
      h("aside", {}, this.facts, this.leave, h("h3", {}, "What was done"), this.turns));
    root.append(this.page);
  }

  update(component) {
    this.component = component;
    const mark = JSON.stringify(component.data);
    if (mark !== this.mark) {
      const before = this.data;
      this.mark = mark;
      this.data = component.data;
      if (this.data.wait) this.began = performance.now() - 1000 * this.data.wait.seconds;
      this.draw(before);
    }
    this.goOn();
  }

  get asked() { return this.data?.stage === "asked"; }

  draw(before) {
    const { data } = this;
    const over = data.stage === "over";
    const other = !before || before.episode !== data.episode;
    if (other || before.step !== data.step || before.stage !== data.stage) {
      this.page.dataset.stage = data.stage;
      this.page.dataset.step = data.step;
    }
    if (other) this.waiting = [];
    this.text.textContent = data.text;
    this.text.hidden = !this.text.textContent;
    this.pictures.replaceChildren(...data.pictures.map((src) => h("img", { src, alt: "picture of the observation" })));
    this.drawOutcome();
    this.acting.hidden = over;
    this.leave.hidden = over;
    if (this.sent && (other || this.sent.step !== data.step || over)) {
      if (document.activeElement && this.input.value === this.sent.action) this.input.value = "";
      this.sent = null;
    }
    this.filter();
    this.drawFacts();
    this.turns.replaceChildren(...data.turns.map((turn, place) => this.turn(turn, place)).reverse());
    this.prompt.replaceChildren(...data.prompt.map((message) => h("div", { class: "message" }, h("h3", {}, message.role),
      message.parts.map((part) => part.picture
        ? h("img", { src: part.picture, alt: "picture of the prompt" })
        : h("div", { class: "text", dir: "auto" }, part.text)))));
    if (data.stage === "asked" && (other || !before || before.stage === "opening")) this.focus();
  }

  drawOutcome() {
    const { outcome, replay } = this.data;
    this.outcome.hidden = !outcome;
    if (!outcome) return;
    this.outcome.className = `outcome ${outcome.tone}`;
    this.outcome.replaceChildren(h("b", {}, outcome.words),
      ...(outcome.why ? [h("div", { class: "why", dir: "auto" }, outcome.why)] : []),
      ...(replay ? [h("a", { href: replay, target: "_self", class: "replay" }, "Replay the episode")] : []));
  }

  /* What is waited for, for how long so far, and when the wait ends by itself. */
  drawWait() {
    if (!this.data) return;
    const { environment, answer_seconds, wait } = this.data;
    const sent = this.sent && this.asked; // on its way, or the page has not heard what came of it
    const what = sent ? `${environment} to answer` : wait?.what;
    const passed = performance.now() - (sent ? this.sent.at : this.began);
    this.wait.hidden = !what || passed < WAIT_MS;
    if (this.wait.hidden) return;
    this.wait.textContent = `Waiting for ${what}: ${Math.floor(passed / 1000)} s so far, ${sent ? answer_seconds : wait.most_seconds} s at most`;
  }

  drawFacts() {
    const { turns, horizon, stage } = this.data;
    const total = turns.reduce((sum, turn) => sum + turn.reward, 0);
    const invalid = turns.filter((turn) => turn.reason).length;
    const last = turns.at(-1);
    const facts = [
      ["Step", stage === "over" ? `${turns.length}` : `${turns.length + 1} of ${horizon}`],
      ["Steps left", `${horizon - turns.length}`],
      ["Last reward", last ? number(last.reward, true) : "–"],
      ["Return", number(total, true)],
      ["Invalid actions", `${invalid}`],
    ];
    this.facts.replaceChildren(...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  }

  turn(turn, place) {
    return h("li", { value: place + 1, class: turn.reason ? "invalid" : "" },
      h("span", { class: "action", dir: "auto" }, turn.action || "(nothing)"),
      h("span", { class: `reward ${turn.reward > 0 ? "plus" : turn.reward < 0 ? "minus" : ""}` }, number(turn.reward, true)),
      turn.reason && h("span", { class: "reason" }, `invalid: ${turn.reason}`));
  }

  /* The actions that are offered, as buttons. */
  filter() {
    const all = this.asked || this.data.stage === "working" ? this.data.actions ?? [] : [];
    const { many, keys, shown, hint } = offered(all, this.input.value);
    this.byKey = new Map([...keys].map(([action, key]) => [key, action]));
    this.buttons.replaceChildren(...shown.map((action) =>
      h("button", { type: "button", disabled: !this.asked || this.sent, dir: "auto", onclick: () => this.act(action) },
        action, keys.has(action) && keys.get(action) !== action && h("kbd", {}, SHOWN_KEYS[keys.get(action)] ?? keys.get(action)))));
    this.buttons.hidden = !all.length;
    this.send.disabled = !this.asked || Boolean(this.sent);
    this.input.placeholder = many ? "type to find an action; Enter sends what is typed" : "any action; Enter sends it";
    this.hint.textContent = hint;
    this.hint.hidden = !hint;
    this.page.classList.toggle("busy", Boolean(this.sent) || this.data.stage === "working" || this.data.stage === "opening");
  }

  focus() {
    if (this.byKey.size) this.text.focus({ preventScroll: true });
    else this.input.focus({ preventScroll: true });
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.page.isConnected || !this.data) return;
    const at = event.composedPath()[0];
    if (at instanceof Element && at.closest("input, textarea, select, [contenteditable='true']")) return;
    if (this.data.stage === "over") return;
    if (event.key === "/") {
      event.preventDefault();
      this.input.focus();
      return;
    }
    if (!this.asked || this.sent) {
      // What a number stands for is known once the next state is.
      if ((event.key in ARROWS || /^[^0-9\s]$/u.test(event.key)) && this.waiting.length < MOST_WAITING) this.waiting.push(event.key);
      if (event.key in ARROWS) event.preventDefault();
      return;
    }
    const action = this.byKey.get(event.key);
    if (action === undefined) return;
    event.preventDefault();
    this.act(action);
  }

  typed(event) {
    if (event.key === "Escape") {
      this.text.focus({ preventScroll: true });
      event.stopPropagation();
    } else if (event.key === "ArrowDown" && this.buttons.firstChild) {
      this.buttons.firstChild.focus();
      event.preventDefault();
    }
  }

  act(action) {
    if (!this.asked || this.sent || !action.trim()) return;
    this.sent = { episode: this.data.episode, step: this.data.step, action, at: performance.now() };
    this.filter();
    this.tell();
  }

  tell() {
    const { sent } = this;
    const { episode, step, action } = sent;
    this.component.setTriggerValue("move", { episode, step, action });
    window.setTimeout(() => {
      if (this.sent === sent && this.asked && this.page.isConnected) this.tell();
    }, AGAIN_MS);
  }

  goOn() {
    while (this.asked && !this.sent && this.waiting.length) {
      const action = this.byKey.get(this.waiting.shift());
      if (action !== undefined) this.act(action);
    }
  }

  close() {
    window.clearInterval(this.clock);
    document.removeEventListener("keydown", this.onKey);
    this.page.remove();
  }
}

const instances = new WeakMap();

export default function (component) {
  const root = component.parentElement;
  if (!instances.has(root)) instances.set(root, new Play(root));
  instances.get(root).update(component);
  return () => {
    instances.get(root)?.close();
    instances.delete(root);
  };
}
