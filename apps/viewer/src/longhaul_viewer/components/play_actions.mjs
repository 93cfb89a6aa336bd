/* Which admissible actions are shown, by which keys, and what is said of them. */

const MANY = 40;
const MOST_SHOWN = 60;
export const ARROWS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };

export function number(value, signed = false) {
  const shown = Number(value.toPrecision(4));
  return (signed && shown > 0 ? "+" : "") + String(shown).replace("-", "−");
}

/* The key of each action, where it has one: its own letter, an arrow, or its place in the list. */
function keysOf(actions) {
  const single = actions.filter((action) => [...action].length === 1);
  const places = !single.some((action) => /[0-9]/.test(action));
  const keys = new Map();
  actions.forEach((action, place) => {
    const arrow = Object.keys(ARROWS).find((key) => ARROWS[key] === action.toLowerCase());
    if (single.includes(action) && action !== "/") keys.set(action, action);
    else if (arrow) keys.set(action, arrow);
    else if (places && place < 9) keys.set(action, String(place + 1));
  });
  return keys;
}

/* Of all admissible actions: those to show, which hold the words that are typed where there are many;
   the key of each; and a hint, "" where there is nothing to say. */
export function offered(all, typed) {
  const many = all.length > MANY;
  const words = many ? typed.toLowerCase().split(/\s+/).filter(Boolean) : [];
  const fitting = all.filter((action) => words.every((word) => action.toLowerCase().includes(word)));
  const keys = many ? new Map() : keysOf(all);
  const more = fitting.length - MOST_SHOWN;
  const hints = [];
  if (many) hints.push(more > 0 ? `${all.length} actions are admissible; type to find the other ${more}` : `${fitting.length} of ${all.length} admissible actions`);
  if (keys.size) hints.push("Keys: as on the buttons, / to type, Esc back to the keys");
  return { many, keys, shown: fitting.slice(0, MOST_SHOWN), hint: hints.join(". ") };
}
