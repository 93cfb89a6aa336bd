/* Numbers, colours and lines of a group's episodes and of its state graph. */

const EPISODE_COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f7fe0", "#8c8c00"];
const DASHES = ["", "7 3", "2 3"];

export function number(value, signed = false) {
  if (value === null || value === undefined) return "–";
  const shown = Number(value.toPrecision(3));
  return (signed && shown > 0 ? "+" : "") + String(shown).replace("-", "−");
}

export function many(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

export function colourOf(place) {
  return EPISODE_COLOURS[place % EPISODE_COLOURS.length];
}

export function dashOf(place) {
  return DASHES[Math.floor(place / EPISODE_COLOURS.length) % DASHES.length];
}

/* How many steps two episodes begin with that are alike: the same action in the same state. */
export function alike(episode, other) {
  if (!other) return 0;
  let count = 0;
  const steps = Math.min(episode.steps.length, other.steps.length);
  while (count < steps && episode.steps[count].anchor === other.steps[count].anchor &&
    episode.steps[count].action === other.steps[count].action) count += 1;
  return count;
}

/* The node that this one was before the data changed; the goal, number 0, is nobody's state. */
function sameNode(nodes, node) {
  return nodes.find((each) => each.anchor === node.anchor && (each.number === 0) === (node.number === 0));
}

/* What to go on with when the data has changed: the same step, edge or state, which may stand in another
   row and have another number. */
export function chosenAgain(chosen, { episodes, nodes, edges }) {
  if (chosen?.kind === "step") {
    const episode = episodes.find(({ id }) => id === chosen.episode.id);
    const step = episode?.steps.find((each) => each.index === chosen.step.index);
    return step ? { kind: "step", episode, step } : null;
  }
  if (chosen?.kind === "edge") {
    const ends = chosen.ends.map((end) => sameNode(nodes, end));
    const edge = edges.find((each) => each.source === ends[0]?.number && each.target === ends[1]?.number);
    return edge ? { kind: "edge", edge, ends } : null;
  }
  const node = chosen && sameNode(nodes, chosen.node);
  return node ? { kind: "state", node } : null;
}

/* The path of an edge between two points, moved down by `shift`. Towards the goal, in a column further
   right, it leaves to the right; back, or aside, it goes in a bow. */
export function pathOf(from, to, shift) {
  const [x1, y1, x2, y2] = [from.x, from.y + shift, to.x, to.y + shift];
  if (from.x === to.x && from.y === to.y) {
    const size = 15 + Math.abs(shift);
    return `M${x1 - 4} ${y1 - 6} C${x1 - size} ${y1 - 2 * size} ${x1 + size} ${y1 - 2 * size} ${x1 + 4} ${y1 - 6}`;
  }
  if (to.x > from.x) {
    const pull = (x2 - x1) / 2;
    return `M${x1} ${y1} C${x1 + pull} ${y1} ${x2 - pull} ${y2} ${x2} ${y2}`;
  }
  const bow = 14 + Math.min(60, Math.hypot(x2 - x1, y2 - y1) / 4) + shift;
  return to.x === from.x ? `M${x1} ${y1} C${x1 + bow} ${y1} ${x2 + bow} ${y2} ${x2} ${y2}` :
    `M${x1} ${y1} C${x1} ${y1 + bow} ${x2} ${y2 + bow} ${x2} ${y2}`;
}

/* The middle of such a path, and which way it goes there, in degrees clockwise from the right. */
export function middleOf(path) {
  const [x0, y0, x1, y1, x2, y2, x3, y3] = path.match(/-?[0-9.]+(e-?[0-9]+)?/g).map(Number);
  return {
    x: (x0 + 3 * x1 + 3 * x2 + x3) / 8,
    y: (y0 + 3 * y1 + 3 * y2 + y3) / 8,
    turn: Math.atan2(y3 + y2 - y1 - y0, x3 + x2 - x1 - x0) * 180 / Math.PI,
  };
}
