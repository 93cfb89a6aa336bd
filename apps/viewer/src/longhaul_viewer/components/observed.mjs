/* Elements, answers of the API, and observations as a person would see them. What an
 * environment wrote enters the page by textContent alone. */

/** An element; children are elements or texts, which are never read as markup. */
export function h(tag, props, ...children) {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(props || {})) {
    if (value == null || value === false) continue
    if (name.startsWith("on")) element[name.toLowerCase()] = value
    else if (name === "class") element.className = value
    else if (name === "style") element.style.cssText = value
    else element.setAttribute(name, value === true ? "" : value)
  }
  element.append(...children.flat(3).filter((child) => child != null && child !== false))
  return element
}

/** An answer of the API; an error in words for a reader. */
export async function read(from) {
  let answer
  try {
    answer = await fetch(from, { headers: { Accept: "application/json" } })
  } catch {
    throw new Error("The server does not answer. Is the viewer still running?")
  }
  if (answer.ok) return answer.json()
  const problem = await answer.json().catch(() => null)
  throw new Error(problem?.detail ?? `The server answered ${answer.status} for ${from}.`)
}

/** The text that a call wrote, or why there is none. */
export const wrote = ({ reply, tool_calls }) =>
  reply == null ? "(removed by the run's retention)" : reply || (tool_calls.length ? "" : "(no text)")

const SQUARES = {
  "#": "wall", "@": "me", P: "me", A: "me", $: "box", X: "box", ".": "target", O: "target", G: "target",
  "*": "done", "√": "done", "+": "done", _: "floor", " ": "floor", "-": "floor",
}

/** The observation as a person would see it: boards as boards, pages as trees, the rest as prose. */
export function observed(text) {
  const block = h("div", { class: "observed", dir: "auto" })
  const lines = text.split("\n")
  let place = 0
  while (place < lines.length) {
    const stop = boardEnd(lines, place)
    if (stop - place >= 3) {
      block.append(grid(lines.slice(place, stop)))
      place = stop
    } else block.append(line(lines[place++]))
  }
  return block
}

/** Line after the board that begins here; the same line if none does. */
export function boardEnd(lines, first) {
  const cells = (line) => (/^\S( \S)+$/.test(line) ? line.split(" ") : /^[#@$.*+_=|%√-]{3,}$/.test(line) ? [...line] : null)
  const width = cells(lines[first])?.length
  let stop = first
  while (width && stop < lines.length && cells(lines[stop])?.length === width) stop++
  return stop
}

function grid(lines) {
  const rows = lines.map((row) => (row.includes(" ") ? row.split(" ") : [...row]))
  return h(
    "div",
    { class: "grid", style: `--columns:${rows[0].length}`, role: "img", "aria-label": lines.join("\n") },
    rows.map((row) => row.map((cell) => h("span", { class: `square ${SQUARES[cell] ?? ""}` }, cell))),
  )
}

function line(text) {
  const node = /^(\t*)\[(\w+)\] (\S+)(.*)$/.exec(text) // of a page's accessibility tree
  if (node) {
    return h("div", { class: "node", style: `--depth:${node[1].length}` }, h("b", {}, node[2]), " ", h("i", {}, node[3]), node[4])
  }
  const labelled = /^([A-Z][\w ]{0,28}:)( .*)?$/.exec(text)
  if (labelled) return h("div", {}, h("b", {}, labelled[1]), labelled[2] ?? "")
  return h("div", {}, text || "\u00a0")
}
