/* The episodes of a group above each other, their states as a graph, and what the reader looks at.

   All text of environments and models goes in as text. What is chosen stands in the address, and is
   put there without a new entry of the history. */

import { alike, chosenAgain, colourOf, dashOf, many, middleOf, number, pathOf } from "./group_shapes.mjs";
import { h, observed, read, wrote } from "./observed.mjs";

const SVG = "http://www.w3.org/2000/svg";
const COLUMN = 32, ROW = 28, MARGIN = 30;
const NARROWEST = 12, WIDEST = 64;
const CHUNK_STEPS = 8;  // of an episode, read at once where two stand beside each other
const MOVES = { ArrowLeft: [0, -1], h: [0, -1], ArrowRight: [0, 1], l: [0, 1],
  ArrowUp: [-1, 0], k: [-1, 0], ArrowDown: [1, 0], j: [1, 0] };
const KEYS = [
  ["← →  or  h l", "step before, step after"],
  ["↑ ↓  or  k j", "episode above, episode below (arrows: once a step is chosen)"],
  ["Enter", "choose the state or the edge that is marked"],
  ["p n", "group before, group after"],
  ["/", "search actions and states; Enter goes to the next step found, Shift and Enter to the one before"],
  ["Esc", "choose nothing"],
  ["?", "this list"],
];

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function drawing(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

class Group {
  constructor(root, data, before) {
    this.root = root;
    this.pathname = before?.pathname ?? window.location.pathname;
    this.data = data;
    this.byId = new Map(data.episodes.map((episode, place) => [episode.id, { episode, place }]));
    this.nodes = new Map(data.nodes.map((node) => [node.number, node]));
    this.stepsOf = new Map(data.nodes.map((node) => [node.number, []]));
    data.episodes.forEach((episode) =>
      episode.steps.forEach((step) => this.stepsOf.get(step.node)?.push({ episode, step })));
    this.readAddress();
    if (data.episodes.some(({ id }) => before?.byId.has(id))) this.goOnFrom(before.chosen);
    this.draw();
  }

  /* The address. */

  readAddress() {
    const query = new URLSearchParams(window.location.search);
    const known = this.data.estimators.filter((each) => !each.missing);
    this.estimator = known.find((each) => each.name === query.get("estimator")) ?? known[0] ?? null;
    this.edges = query.get("edges") === "advantage" ? "advantage" : "episode";
    this.wanted = query.get("search") ?? "";
    this.chosen = null;
    const at = /^([0-9]+)\.([0-9]+)$/.exec(query.get("at") ?? "");
    const edge = /^([0-9]+)-([0-9]+)$/.exec(query.get("edge") ?? "");
    const state = /^[0-9]+$/.exec(query.get("state") ?? "");
    if (at) {
      const episode = this.data.episodes[Number(at[1])];
      const step = episode?.steps[Number(at[2])];
      if (step) this.chosen = { kind: "step", episode, step };
    } else if (edge) {
      const found = this.data.edges.find((each) => each.source === Number(edge[1]) && each.target === Number(edge[2]));
      if (found) this.chosen = this.edgeChoice(found);
    } else if (state && this.nodes.has(Number(state[0]))) {
      this.chosen = { kind: "state", node: this.nodes.get(Number(state[0])) };
    }
  }

  /* What was chosen before the data changed. */
  goOnFrom(chosen) {
    this.chosen = chosenAgain(chosen, this.data);
    if (window.location.pathname === this.pathname) this.writeAddress();
  }

  edgeChoice(edge) {
    return { kind: "edge", edge, ends: [this.nodes.get(edge.source), this.nodes.get(edge.target)] };
  }

  writeAddress() {
    const url = new URL(window.location.href);
    for (const name of ["estimator", "edges", "search", "state", "edge", "at"]) url.searchParams.delete(name);
    const first = this.data.estimators.find((each) => !each.missing);
    if (this.estimator && this.estimator !== first) url.searchParams.set("estimator", this.estimator.name);
    if (this.edges !== "episode") url.searchParams.set("edges", this.edges);
    if (this.wanted.trim()) url.searchParams.set("search", this.wanted);
    const chosen = this.chosen;
    if (chosen?.kind === "step")
      url.searchParams.set("at", `${this.byId.get(chosen.episode.id).place}.${chosen.step.index}`);
    if (chosen?.kind === "edge") url.searchParams.set("edge", `${chosen.edge.source}-${chosen.edge.target}`);
    if (chosen?.kind === "state") url.searchParams.set("state", chosen.node.number);
    window.history.replaceState(window.history.state, "", url);
  }

  /* Numbers. */

  credit(episode, step) {
    const found = this.estimator?.episodes[episode.id];
    if (!found) return null;
    return { episode: found.episode, step: found.steps[step.index], advantage: found.advantages[step.index] };
  }

  advantage(episode, step) {
    return this.estimator ? (this.credit(episode, step)?.advantage ?? null) : step.advantage;
  }

  reach() {
    let largest = 0;
    for (const episode of this.data.episodes)
      for (const step of episode.steps) largest = Math.max(largest, Math.abs(this.advantage(episode, step) ?? 0));
    return largest;
  }

  stepsBehind(edge) {
    return edge.steps.map(([id, index]) => {
      const { episode } = this.byId.get(id);
      return { episode, step: episode.steps.find((step) => step.index === index) };
    });
  }

  /* Drawing. */

  draw() {
    const page = element("div", { class: "group" });
    if (isDark(this.root)) page.classList.add("dark");
    this.page = page;
    this.main = element("div", { class: "main" });
    this.panel = element("aside", { class: "panel", "aria-live": "polite" });
    page.append(this.controls(), this.main, this.panel);
    this.root.replaceChildren(page);
    this.redraw();
    this.watcher = new ResizeObserver(() => this.fit());
    this.watcher.observe(this.main);
    this.onKey = (event) => this.key(event);
    document.addEventListener("keydown", this.onKey);
  }

  close() {
    this.watcher.disconnect();
    document.removeEventListener("keydown", this.onKey);
  }

  redraw() {
    this.cells = new Map();
    this.main.replaceChildren(this.board());
    if (this.data.nodes.length) this.main.append(this.graph());
    if (this.data.api) this.main.append(this.pair = element("section", { class: "pair", "aria-live": "polite" }));
    this.fit();
    this.show();
    this.mark();
  }

  controls() {
    const beside = this.data.beside ?? {};
    const way = (place, said, named, press) => (this[place] = !this.data.beside ? null :
      beside[place] ? element("a", { href: beside[place], title: `${named} (${press})` }, said) :
      element("span", { class: "none", title: `there is no ${named}` }, said));
    return element("div", { class: "controls" },
      ...(this.data.estimators.length ? this.chooser() : []),
      this.searcher(),
      element("span", { class: "ways" }, way("earlier", "‹ group", "group before", "p"),
        way("later", "group ›", "group after", "n"),
        element("button", { title: "keys (?)", "aria-label": "keys", onclick: () => this.help() }, "?")));
  }

  chooser() {
    const select = element("select", { "aria-label": "advantages by", onchange: () => {
      this.estimator = this.data.estimators.find((each) => each.name === select.value);
      this.writeAddress();
      this.redraw();
      said.textContent = this.estimator.summary;
    } });
    for (const each of this.data.estimators) {
      const mark = each.trained ? " — trained with" : each.missing ? " — not known" : "";
      select.append(element("option", {
        value: each.name, disabled: each.missing ? "" : null, title: each.missing ?? each.summary,
        selected: each === this.estimator ? "" : null,
      }, each.name + mark));
    }
    const said = element("span", { class: "what" }, this.estimator?.summary ?? this.data.estimators[0].missing ?? "");
    return [element("label", {}, "Advantages by", select), said];
  }

  /* Search: the steps whose action, or the state before it, holds what is written. */

  searcher() {
    this.input = element("input", { type: "search", placeholder: "Search /", "aria-label": "Search the group", value: this.wanted,
      oninput: () => { this.wanted = this.input.value; this.mark(); this.writeAddress(); },
      onkeydown: (event) => this.searchKey(event) });
    this.hits = element("span", { class: "hits", role: "status" });
    return element("span", { class: "search" }, this.input, this.hits);
  }

  mark() {
    const wanted = this.wanted.trim().toLowerCase();
    this.found = [];
    for (const each of this.cells.values()) {
      const { cell, step } = each;
      const found = wanted !== "" && [step.action, this.nodes.get(step.node)?.text ?? ""].some((text) => text.toLowerCase().includes(wanted));
      cell.classList.toggle("match", found);
      if (found) this.found.push(each);
    }
    this.hits.textContent = wanted ? many(this.found.length, "step") : "";
  }

  searchKey(event) {
    event.stopPropagation();
    if (event.key === "Escape") {
      event.preventDefault();
      this.input.blur();
    } else if (event.key === "Enter" && this.found.length) {
      const { length } = this.found;
      const at = this.chosen?.kind === "step" ? this.found.findIndex(({ step }) => step === this.chosen.step) : -1;
      const next = event.shiftKey ? this.found[(at < 0 ? 0 : at) - 1] ?? this.found[length - 1] : this.found[(at + 1) % length];
      this.choose({ kind: "step", episode: next.episode, step: next.step });
      next.cell.scrollIntoView({ block: "nearest", inline: "nearest" });
      this.hits.textContent = `${this.found.indexOf(next) + 1} of ${many(length, "step")}`;
    }
  }

  /* Keys. */

  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = event.composedPath()[0];
    if (at instanceof HTMLElement && (at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName))) return;
    const actions = {
      n: () => this.later?.click(), p: () => this.earlier?.click(), "?": () => this.help(), "/": () => this.input.focus(),
      Escape: () => this.dialog ? this.help() : this.choose(null),
    };
    const action = actions[event.key];
    if (action) {
      event.preventDefault();
      action();
    } else this.move(event);
  }

  /* The list of keys, or away with it. */
  help() {
    if (this.dialog) {
      this.dialog.remove();
      this.dialog = null;
      return;
    }
    const rows = KEYS.map(([keys, what]) => element("tr", {}, element("th", {}, keys), element("td", {}, what)));
    this.dialog = element("div", { class: "help", role: "dialog", "aria-label": "keys", onclick: () => this.help() },
      element("div", {}, element("h2", {}, "Keys"), element("table", {}, ...rows),
        element("p", { class: "muted" }, "Esc or a click closes this.")));
    this.page.append(this.dialog);
  }

  board() {
    const longest = Math.max(1, ...this.data.episodes.map((episode) => episode.steps.length));
    const reach = this.reach();
    const rows = this.data.episodes.map((episode, place) => this.line(episode, place, reach));
    const ruler = element("div", { class: "line ruler" }, element("span", { class: "head" },
      element("span"), element("span", { class: "name" }, "step"), element("span", { class: "outcome" }), element("span", {}, "return")));
    for (let step = 0; step < longest; step += 1)
      ruler.append(element("span", { class: "tick" }, step % 5 === 0 || longest < 12 ? String(step) : ""));
    this.longest = longest;
    const credited = this.data.estimators.length > 0;
    const parting = this.data.parting;
    const said = parting === null || parting === undefined ? "" :
      parting === 0 ? "they part at the first step" :
      `the first ${parting === 1 ? "step is" : `${parting} steps are`} alike, then they part`;
    return element("section", {},
      element("h3", {}, "Episodes", element("span", {}, said),
        element("span", { class: "legend" }, credited ? key("var(--good)", "above 0") : null,
          credited ? key("var(--bad)", "below 0") : null, element("span", {}, "★ paid"), element("span", {}, "× invalid"),
          element("span", {}, "shaded: alike so far"), element("span", {}, "┃ parts from the row above"),
          credited ? element("span", {}, reach ? `tallest ${number(reach)}` : "every advantage is 0 or unknown") : null)),
      (this.scroller = element("div", { class: "board" }, ruler, ...rows)));
  }

  line(episode, place, reach) {
    const head = element("a", { class: "head", href: episode.address, title: `replay: ${episode.outcome}` },
      element("span", { class: "chip", style: `background:${colourOf(place)}` }),
      element("span", { class: "name" }, episode.name),
      element("span", { class: "outcome", dir: "auto" }, episode.outcome),
      element("span", { class: "sum" }, number(episode.return)));
    const line = element("div", { class: `line ${place ? "separate" : ""}` }, head);
    const shared = [this.data.episodes[place - 1], this.data.episodes[place + 1]].map((other) => alike(episode, other));
    episode.steps.forEach((step, index) => {
      const value = this.advantage(episode, step);
      const cell = element("button", {
        class: "cell" + (index < Math.max(...shared) ? " shared" : "") + (place && shared[0] === index ? " first" : "") +
          (value === null && this.data.estimators.length ? " uncredited" : ""),
        "aria-label": `episode ${episode.name}, step ${index}: ${step.action}, advantage ${number(value, true)}`,
        title: `step ${index}: ${step.action}\nadvantage ${number(value, true)}`,
        onclick: () => this.choose({ kind: "step", episode, step }),
        onmouseenter: () => this.light(step.node), onmouseleave: () => this.light(null),
      });
      if (value) cell.append(element("span", { class: `bar ${value > 0 ? "plus" : "minus"}`,
        style: `height:${Math.max(4, 46 * Math.abs(value) / reach)}%` }));
      if (step.reward > 0) cell.append(element("span", { class: "mark paid" }, "★"));
      if (!step.valid) cell.append(element("span", { class: "mark invalid" }, "×"));
      this.cells.set(`${place}.${index}`, { cell, step, episode });
      line.append(cell);
    });
    return line;
  }

  /* From the chosen step to another; up and down scroll the page as long as none is. */
  move(event) {
    const [down, right] = MOVES[event.key] ?? [0, 0];
    const chosen = this.chosen?.kind === "step" ? this.chosen : null;
    if ((!down && !right) || (!chosen && event.key.startsWith("Arrow") && down)) return;
    event.preventDefault();
    let place = chosen ? this.byId.get(chosen.episode.id).place + down : 0;
    const at = chosen?.step.index ?? (this.data.api ? this.stepBeside() : -1);
    // Of two that stand beside each other one may be over.
    const length = (row) => this.data.episodes[row]?.steps.length ?? 0;
    if (this.data.api && right > 0 && length(place) <= at + 1 && length(place) < length(1 - place)) place = 1 - place;
    const episode = this.data.episodes[place];
    if (!episode?.steps.length) return;
    const found = this.cells.get(`${place}.${Math.min(episode.steps.length - 1, Math.max(0, at + right))}`);
    this.choose({ kind: "step", episode, step: found.step });
    found.cell.focus();
  }

  /* As wide as there is room for, so that a step is seen and a row is not broken. */
  fit() {
    const room = this.scroller.clientWidth - this.scroller.querySelector(".head").offsetWidth - 4;
    const width = Math.min(WIDEST, Math.max(NARROWEST, room / this.longest));
    this.page.style.setProperty("--cell", `${width}px`);
  }

  graph() {
    const { nodes, edges } = this.data;
    const columns = Math.max(...nodes.map((node) => node.column)) + 1;
    const rows = Math.max(...nodes.map((node) => node.row)) + 1;
    const furthest = Math.max(-1, ...nodes.map((node) => node.distance ?? -1));
    const room = (this.main.clientWidth || 900) - 2 * MARGIN - 8;
    const across = Math.max(COLUMN, Math.min(120, room / Math.max(1, columns - 1)));
    const width = 2 * MARGIN + (columns - 1) * across;
    const height = 2 * MARGIN + (rows - 1) * ROW + 22;
    this.x = (node) => MARGIN + node.column * across;
    this.y = (node) => MARGIN + 18 + node.row * ROW;
    const svg = drawing("svg", { width, height, role: "group", "aria-label": "states of the group" });
    this.svg = svg;
    if (furthest >= 0)
      for (let column = 0; column <= furthest; column += 1)
        if ((furthest - column) % (across < 60 ? 2 : 1) === 0)
          svg.append(drawing("text", { x: MARGIN + column * across, y: 14, "text-anchor": "middle", class: "faint" },
            column === furthest ? "goal" : `${furthest - column}`));
    const reach = this.reach();
    for (const edge of edges) svg.append(this.edge(edge, reach));
    if (furthest >= 0 && nodes.some((node) => node.distance === null))
      svg.append(drawing("text", { x: 6, y: height - 6, class: "faint" }, "no episode reached the goal from the lower rows"));
    for (const node of nodes) svg.append(this.node(node));
    const tint = element("select", { "aria-label": "edges coloured by", onchange: () => {
      this.edges = tint.value;
      this.writeAddress();
      this.redraw();
    } });
    for (const [value, said] of [["episode", "episode"], ["advantage", "advantage"]])
      tint.append(element("option", { value, selected: value === this.edges ? "" : null }, said));
    const reading = furthest >= 0 ? "left to right: nearer to success, in steps" : "no episode succeeded: left to right from the start";
    return element("section", {},
      element("h3", {}, "State graph", element("span", {}, reading),
        element("span", { class: "legend" }, element("label", {}, "edges by ", tint),
          element("span", {}, "thick ring: start"), element("span", {}, "dashed: an episode ended there"),
          element("span", {}, "number: steps taken in the state"))),
      element("div", { class: "canvas" }, svg));
  }

  edge(edge, reach) {
    const behind = this.stepsBehind(edge);
    const path = this.path(edge, 0);
    const actions = [...new Set(behind.map(({ step }) => step.action))];
    const group = drawing("g", {
      class: "edge", tabindex: 0, role: "button", "data-edge": `${edge.source}-${edge.target}`,
      "aria-label": `${behind.length} steps from state ${edge.source} to ${edge.target}: ${actions.join(", ")}`,
      onclick: () => this.choose(this.edgeChoice(edge)),
      onkeydown: (event) => { if (event.key === "Enter") this.choose(this.edgeChoice(edge)); },
      onmouseenter: () => this.lightEdge(edge), onmouseleave: () => this.light(null),
    });
    if (this.edges === "advantage") {
      const known = behind.map(({ episode, step }) => this.advantage(episode, step)).filter((value) => value !== null);
      const mean = known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : 0;
      const strength = reach ? Math.round(20 + 80 * Math.min(1, Math.abs(mean) / reach)) : 0;
      const colour = !mean ? "rgba(128,128,140,.55)" :
        `color-mix(in srgb, var(${mean > 0 ? "--good" : "--bad"}) ${strength}%, rgba(128,128,140,.35))`;
      group.append(drawing("path", { d: path, class: "stroke", "stroke-dasharray": mean < 0 ? "6 3" : "",
        style: `stroke:${colour};stroke-width:${1.2 + 1.3 * Math.sqrt(behind.length)}` }));
    } else {
      const places = [...new Set(behind.map(({ episode }) => this.byId.get(episode.id).place))];
      const gap = Math.min(2.6, 16 / places.length);
      places.forEach((place, rank) => group.append(drawing("path", {
        d: this.path(edge, (rank - (places.length - 1) / 2) * gap), class: "stroke",
        "stroke-dasharray": dashOf(place), style: `stroke:${colourOf(place)};stroke-width:2.2`,
      })));
    }
    if (behind.length && this.nodes.get(edge.target).column <= this.nodes.get(edge.source).column)
      group.append(this.arrow(path));
    group.append(drawing("path", { d: path, class: "hit" }), drawing("title", {}, `${actions.join(" · ")} (${behind.length})`));
    return group;
  }

  path(edge, shift) {
    const at = (node) => ({ x: this.x(node), y: this.y(node) });
    return pathOf(at(this.nodes.get(edge.source)), at(this.nodes.get(edge.target)), shift);
  }

  /* Halfway along an edge that does not lead to the right, which way it goes. */
  arrow(path) {
    const { x, y, turn } = middleOf(path);
    return drawing("path", { class: "arrow", d: "M-3 -3.5L3.5 0L-3 3.5", transform: `translate(${x} ${y}) rotate(${turn})` });
  }

  node(node) {
    const goal = node.number === 0;
    const radius = goal ? 11 : 6 + Math.min(7, 1.6 * Math.sqrt(node.steps));
    const classes = ["node", goal ? "goal" : "", node.starts ? "start" : "", !goal && node.ends ? "end" : ""].join(" ");
    const group = drawing("g", {
      class: classes, tabindex: 0, role: "button", "data-state": node.number,
      "aria-label": goal ? `the goal, reached by ${many(node.ends, "episode")}` : `state ${node.number}, ${many(node.steps, "step")}`,
      onclick: () => this.choose({ kind: "state", node }),
      onkeydown: (event) => { if (event.key === "Enter") this.choose({ kind: "state", node }); },
      onmouseenter: () => this.light(node.number), onmouseleave: () => this.light(null),
    });
    group.append(drawing("circle", { class: "dot", cx: this.x(node), cy: this.y(node), r: radius }));
    if (goal) group.append(drawing("text", { x: this.x(node), y: this.y(node) + 4, "text-anchor": "middle", style: "fill:white;font-size:12px" }, "★"));
    else if (node.steps > 1) group.append(drawing("text", { x: this.x(node), y: this.y(node) + 4, "text-anchor": "middle", style: "font-size:10px" }, String(node.steps)));
    group.append(drawing("title", {}, goal ? `reached by ${many(node.ends, "episode")}` : (node.text ?? `state ${node.number}`).slice(0, 300)));
    return group;
  }

  /* What the pointer is on. */

  light(number) {
    for (const { cell, step } of this.cells.values()) cell.classList.toggle("same", number !== null && step.node === number);
    if (!this.svg) return;
    this.svg.classList.toggle("dimmed", number !== null && number !== undefined);
    for (const node of this.svg.querySelectorAll(".node")) node.classList.toggle("lit", Number(node.dataset.state) === number);
    for (const edge of this.svg.querySelectorAll(".edge"))
      edge.classList.toggle("lit", edge.dataset.edge.split("-").map(Number).includes(number));
  }

  lightEdge(edge) {
    this.light(edge.source);
    const name = `${edge.source}-${edge.target}`;
    for (const each of this.svg.querySelectorAll(".edge")) each.classList.toggle("lit", each.dataset.edge === name);
    for (const node of this.svg.querySelectorAll(".node"))
      node.classList.toggle("lit", [edge.source, edge.target].includes(Number(node.dataset.state)));
  }

  /* What is chosen. */

  choose(chosen) {
    this.chosen = chosen;
    this.writeAddress();
    this.show();
  }

  show() {
    const chosen = this.chosen;
    for (const { cell, step, episode } of this.cells.values())
      cell.classList.toggle("chosen", chosen?.kind === "step" ? chosen.step === step :
        chosen?.kind === "state" ? chosen.node.number === step.node :
        chosen?.kind === "edge" ? chosen.edge.steps.some(([id, index]) => id === episode.id && index === step.index) : false);
    if (this.svg) {
      const state = chosen?.kind === "state" ? chosen.node.number : chosen?.kind === "step" ? chosen.step.node : null;
      for (const node of this.svg.querySelectorAll(".node")) node.classList.toggle("chosen", Number(node.dataset.state) === state);
      const name = chosen?.kind === "edge" ? `${chosen.edge.source}-${chosen.edge.target}` : null;
      for (const edge of this.svg.querySelectorAll(".edge")) edge.classList.toggle("chosen", edge.dataset.edge === name);
    }
    const drawn = { step: () => this.stepPanel(), state: () => this.statePanel(chosen.node), edge: () => this.edgePanel() };
    this.panel.replaceChildren(...(this.data.api ? this.sides() : chosen ? [this.closing(), ...drawn[chosen.kind]()] : this.emptyPanel()));
    if (this.data.api) this.showBeside();
  }

  closing() {
    return element("button", { class: "close", "aria-label": "close", onclick: () => this.choose(null) }, "×");
  }

  /* What both of two episodes did at each step, from the step before they part. */
  sides() {
    const [one, other] = this.data.episodes;
    const from = Math.max(0, (this.data.parting ?? 0) - 1);
    const to = Math.max(one.steps.length, other.steps.length);
    const cell = (step) => element("td", { class: "action", dir: "auto" },
      step ? element("a", { href: step.address }, step.action + (step.valid ? "" : " ×")) : "–");
    const rows = [];
    for (let index = from; index < to; index += 1)
      rows.push(element("tr", { class: index === this.stepBeside() ? "chosen" : "" },
        element("td", { class: "number" }, String(index)), cell(one.steps[index]), cell(other.steps[index])));
    return [
      element("h3", {}, "What each did"),
      element("p", { class: "muted" }, from ? `The first ${from} steps are left out. A click replays the step.` : "A click replays the step."),
      element("table", {}, element("thead", {}, element("tr", {}, element("th", { class: "number" }, "Step"),
        element("th", {}, one.name), element("th", {}, other.name))), element("tbody", {}, ...rows)),
    ];
  }

  /* The step of both that is looked at: the chosen one, else that at which they part. */
  stepBeside() {
    return this.chosen?.kind === "step" ? this.chosen.step.index : (this.data.parting ?? 0);
  }

  /* What both of two episodes were shown, wrote and did at one step. */
  async showBeside() {
    const index = this.stepBeside();
    const showing = (this.showing = Symbol(index));
    const waiting = setTimeout(() => showing === this.showing && this.pair.classList.add("waiting"), 150);
    const columns = await Promise.all(this.data.episodes.map((episode) => this.side(episode, index)));
    clearTimeout(waiting);
    if (showing !== this.showing) return;
    this.pair.classList.remove("waiting");
    this.pair.dataset.step = index;
    this.pair.replaceChildren(...columns);
  }

  async side(episode, index) {
    const ended = index >= episode.steps.length;
    const column = h("article", { "aria-label": `episode ${episode.name}` }, h("h3", {}, `${episode.name}, step ${index}`));
    let texts;
    try {
      texts = await this.texts(episode, Math.min(index, episode.steps.length - 1));
    } catch (error) {
      column.append(h("p", { role: "alert" }, error.message), h("button", { class: "again", onclick: () => this.showBeside() }, "Try again"));
      return column;
    }
    const step = ended ? null : texts.steps.find((each) => each.step_index === index);
    const shown = step ? step.observation : texts.final_observation;
    column.append(...[
      ended && h("p", {}, h("b", {}, `Over after ${many(episode.steps.length, "step")}: ${episode.outcome}`)),
      step?.pictures.length > 0 && h("div", { class: "pictures" }, step.pictures.map((each) =>
        h("img", { src: `${this.data.api}/media/${each.content_hash}`, alt: "picture of the observation" }))),
      shown != null ? observed(shown) : h("p", { class: "muted" }, ended ? "No last observation is stored." : "Its text was removed from the store."),
      ...(step?.calls ?? []).map((call) => h("div", { class: "wrote", dir: "auto" }, wrote(call),
        call.tool_calls.map((each) => h("div", {}, h("b", {}, each.name), " ", each.arguments)))),
      step && this.did(episode.steps[index]),
    ].filter(Boolean));
    return column;
  }

  did(step) {
    return h("p", { class: `did ${step.valid ? "" : "invalid"}` }, h("b", { dir: "auto" }, step.action || "(empty)"), step.valid ? "" : " × invalid",
      h("span", { class: "muted" }, ` reward ${number(step.reward, true)} · `), h("a", { href: step.address }, "Replay this step ›"));
  }

  /* The texts of a step and of those near it, each read once. */
  async texts(episode, index) {
    const from = Math.max(0, index - (index % CHUNK_STEPS));
    const address = `${this.data.api}/episodes/${episode.id.split("/").map(encodeURIComponent).join("/")}/texts?from=${from}&to=${from + CHUNK_STEPS}&tokens=false`;
    this.known ??= new Map();
    if (!this.known.has(address)) {
      this.known.set(address, read(address));
      this.known.get(address).catch(() => this.known.delete(address));
    }
    return this.known.get(address);
  }

  emptyPanel() {
    return [
      element("h3", {}, "Why these advantages"),
      element("p", { class: "muted" }, "Choose a step: its advantage is taken apart here, beside the steps that the group took in the same state. " +
        (this.data.nodes.length ? "Choose a state or an edge of the graph: all steps behind it." : "")),
      element("p", { class: "muted" }, "Arrow keys, or h j k l, go from step to step; ? lists all keys. A row's name opens its replay."),
    ];
  }

  stepPanel() {
    const { episode, step } = this.chosen;
    const credit = this.credit(episode, step);
    const parts = [
      element("h3", {}, `Episode ${episode.name}, step ${step.index}`),
      element("p", {}, element("b", { dir: "auto" }, step.action), step.valid ? "" : " (invalid)"),
      element("p", {}, element("a", { href: step.address, "data-replay": "" }, "Replay this step ›")),
    ];
    const rows = [["reward", step.reward, false]];
    if (step.shaped !== null && step.shaped !== step.reward) rows.push(["shaped reward", step.shaped, false]);
    if (step.togo !== null) rows.push([`return-to-go, discount ${this.data.discount}`, step.togo, false]);
    const before = this.nodes.get(step.node);
    const after = this.nodes.get(this.nextNode(episode, step));
    if (before && after && before.distance !== null)
      parts.push(element("p", { class: "muted" }, `${many(before.distance, "step")} from success before it, ` +
        (after.distance === null ? "and no way there was found after it" : `${after.distance} after it`)));
    if (credit) rows.push(["episode part", credit.episode, true], ["step part", credit.step, true], [`advantage by ${this.estimator.name}`, credit.advantage, true]);
    parts.push(facts(rows));
    if (before) parts.push(...this.statePanel(before, step));
    return parts;
  }

  nextNode(episode, step) {
    return this.data.edges.find((edge) => edge.steps.some(([id, index]) => id === episode.id && index === step.index))?.target;
  }

  statePanel(node, here = null) {
    if (node.number === 0)
      return [element("h3", {}, "Goal"), element("p", {}, `${many(node.ends, "episode")} reached it.`)];
    const steps = this.stepsOf.get(node.number);
    const returns = steps.map(({ step }) => step.togo).filter((value) => value !== null);
    const mean = returns.length ? returns.reduce((sum, value) => sum + value, 0) / returns.length : null;
    const distance = node.distance === null ? "no way to success was found from it" : `${many(node.distance, "step")} from success`;
    return [
      element("h3", {}, `State ${node.number}`),
      element("p", { class: "muted" }, `${many(node.steps, "step")} of ${many(node.episodes, "episode")}; ${distance}` +
        (mean === null ? "" : `; mean return-to-go ${number(mean)}`)),
      element("div", { class: "state", dir: "auto" }, node.text ?? "Its text was removed from the store."),
      this.table(steps, here),
    ];
  }

  edgePanel() {
    const { edge } = this.chosen;
    const said = (name) => (name === 0 ? "the goal" : `state ${name}`);
    return [
      element("h3", {}, `From ${said(edge.source)} to ${said(edge.target)}`),
      this.table(this.stepsBehind(edge), null),
      ...this.statePanel(this.nodes.get(edge.source)),
    ];
  }

  table(steps, here) {
    const head = element("tr", {}, element("th", {}, "Step"), element("th", {}, "Action"),
      element("th", { class: "number", title: "discounted sum of the shaped rewards from the step on" }, "To go"),
      element("th", { class: "number" }, "Adv."));
    const ordered = [...steps].sort((one, other) =>
      (this.advantage(other.episode, other.step) ?? 0) - (this.advantage(one.episode, one.step) ?? 0));
    const rows = ordered.map(({ episode, step }) => {
      const value = this.advantage(episode, step);
      const place = this.byId.get(episode.id).place;
      return element("tr", { class: step === here ? "chosen" : "" },
        element("td", {}, element("span", { style: `color:${colourOf(place)}`, "aria-hidden": "true" }, "■ "),
          element("a", { href: step.address }, `${episode.name} · ${step.index}`)),
        element("td", { class: "action", dir: "auto" }, step.action + (step.valid ? "" : " ×")),
        element("td", { class: "number" }, number(step.togo)),
        element("td", { class: `number ${value > 0 ? "plus" : value < 0 ? "minus" : ""}` }, number(value, true)));
    });
    return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  }
}

function facts(rows) {
  return element("table", {}, element("tbody", {}, ...rows.map(([name, value, signed], place) =>
    element("tr", { class: signed && place === rows.length - 1 ? "sum" : "" }, element("td", {}, name),
      element("td", { class: `number ${signed && value > 0 ? "plus" : signed && value < 0 ? "minus" : ""}` }, number(value, signed))))));
}

function key(colour, said) {
  return element("span", {}, element("i", { style: `background:${colour}` }), said);
}

function isDark(root) {
  const host = root.host ?? root;
  const probe = getComputedStyle(host).getPropertyValue("--st-background-color").trim();
  const found = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})/i.exec(probe);
  return found ? found.slice(1).reduce((sum, part) => sum + parseInt(part, 16), 0) < 384 : false;
}

const drawn = new WeakMap();

export default function ({ data, parentElement }) {
  const mark = JSON.stringify(data);
  let place = parentElement.querySelector(".place");
  if (!place) {
    place = element("div", { class: "place" });
    parentElement.append(place);
  }
  const before = drawn.get(place);
  const theme = isDark(parentElement);
  const close = () => drawn.get(place)?.group.close();
  if (before?.mark === mark && before.theme === theme) return close;
  const searching = before?.group.input.getRootNode().activeElement === before?.group.input;
  before?.group.close();
  const group = new Group(place, data, before?.group);
  if (before && searching) group.input.focus();
  drawn.set(place, { mark, theme, group });
  return close;
}
