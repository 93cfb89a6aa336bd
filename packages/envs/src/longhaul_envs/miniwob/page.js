// What the agent sees of a MiniWoB++ page, and where its elements are. Runs in the page before
// anything else, and gives each element a number when it is first seen, for the whole episode.
window.longhaul = (() => {
  const numbers = new Map();
  const elements = [];
  const leftOut = new Set(["reward-display", "sync-task-cover", "click-canvas", "query"]);
  const controls = new Set(["INPUT", "TEXTAREA", "SELECT", "BUTTON", "A", "IMG", "CANVAS"]);
  const unseen = new Set(["SCRIPT", "STYLE", "OPTION", "OPTGROUP"]);
  const states = ["aria-expanded", "aria-selected", "aria-checked", "aria-pressed"];

  function numberOf(element) {
    if (!numbers.has(element)) {
      elements.push(element);
      numbers.set(element, elements.length);
    }
    return numbers.get(element);
  }

  // Wide and high enough to be a field that is clicked, such as one of tic-tac-toe.
  function isBroad(element) {
    const box = element.getBoundingClientRect();
    return box.width >= 10 && box.height >= 10;
  }

  const squeezed = (text) => text.replace(/\s+/g, " ").trim();
  const quoted = (text) => JSON.stringify(text);

  function place(element) {
    const box = element.getBoundingClientRect();
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2].map(Math.round);
    return `at ${x},${y} size ${Math.round(box.width)}x${Math.round(box.height)}`;
  }

  function facts(element, style, text, isLeaf) {
    const found = [];
    if (element instanceof HTMLInputElement) {
      found.push(`type=${element.type}`);
      if (element.type === "checkbox" || element.type === "radio") {
        found.push(element.checked ? "checked" : "unchecked");
      } else {
        found.push(`value=${quoted(element.value)}`);
      }
    } else if (element instanceof HTMLTextAreaElement) {
      found.push(`value=${quoted(element.value)}`);
    } else if (element instanceof HTMLSelectElement) {
      const names = (options) => [...options].map((option) => quoted(squeezed(option.text)));
      found.push(`selected=${names(element.selectedOptions).join(", ")}`);
      found.push(`options: ${names(element.options).join(", ")}`);
    } else if (element instanceof HTMLImageElement) {
      found.push(`image=${quoted(element.alt || element.src.split("/").pop())}`);
    }
    if (element.disabled) found.push("disabled");
    if (element.readOnly) found.push("read only");
    if (element === document.activeElement && element !== document.body) found.push("focused");
    for (const name of states) {
      if (element.getAttribute(name) === "true") found.push(name.slice(5));
    }
    if (element instanceof SVGElement) {
      if (style.fill !== "none" && element.tagName !== "svg") found.push(`fill=${style.fill}`);
      // how wide a text is depends on the fonts of the machine
      if (!(element instanceof SVGTextContentElement)) found.push(place(element));
    } else if (isLeaf && !text && !controls.has(element.tagName)) {
      if (style.backgroundColor !== "rgba(0, 0, 0, 0)") found.push(`color=${style.backgroundColor}`);
      if (element.classList.length) found.push(`class=${quoted(element.className)}`);
      if (!found.length && isBroad(element)) found.push("empty");
    }
    if (element.tagName === "CANVAS") found.push(place(element));
    if (element.scrollHeight > element.clientHeight + 1 && /auto|scroll/.test(style.overflowY)) {
      found.push("scrollable");
    }
    const pointed = style.cursor === "pointer" && !controls.has(element.tagName);
    const inherited = getComputedStyle(element.parentElement).cursor === "pointer";
    if (pointed && !inherited) found.push("clickable");
    if (style.textDecorationLine === "line-through") found.push("struck out");
    return found;
  }

  function isSeen(element, style) {
    return style.display !== "none" && style.visibility === "visible" && !unseen.has(element.tagName);
  }

  function lines(element, depth, found) {
    if (leftOut.has(element.id)) return;
    const style = getComputedStyle(element);
    if (!isSeen(element, style)) return;
    const box = element.getBoundingClientRect();
    const hasArea = box.width > 1 && box.height > 1;
    const nodes = [...element.childNodes].filter((node) =>
      node instanceof Text ? squeezed(node.data) : node instanceof Element);
    const hasText = nodes.some((node) => node instanceof Text);
    const isLeaf = !nodes.some((node) => node instanceof Element);
    const ownText = element.tagName === "TEXTAREA" || element.tagName === "SELECT";
    const text = isLeaf && !ownText ? squeezed(nodes.map((node) => node.data).join(" ")) : "";
    const about = facts(element, style, text, isLeaf);
    const shown = hasArea && (hasText || about.length > 0 || controls.has(element.tagName));
    if (shown) {
      const parts = [`[${numberOf(element)}] ${element.tagName.toLowerCase()}`];
      if (text) parts.push(quoted(text));
      found.push("  ".repeat(depth) + [...parts, ...about].join(" "));
    }
    if (isLeaf || ownText) return;
    for (const node of nodes) {
      if (node instanceof Text) {
        if (hasArea) found.push("  ".repeat(depth + shown) + quoted(squeezed(node.data)));
      } else {
        lines(node, depth + (shown ? 1 : 0), found);
      }
    }
  }

  function look() {
    const found = [];
    for (const child of document.body.children) lines(child, 0, found);
    return found.join("\n");
  }

  // The middle of an element in the window, scrolled into view; null if it is gone.
  function middle(number) {
    const element = elements[number - 1];
    if (!element?.isConnected) return null;
    element.scrollIntoView({block: "nearest", inline: "nearest", behavior: "instant"});
    // the first line of a text that runs over several
    const box = element.getClientRects()[0];
    return box ? [box.left + box.width / 2, box.top + box.height / 2] : null;
  }

  function state() {
    const body = document.body.cloneNode(true);
    for (const id of leftOut) if (id !== "query") body.querySelector(`#${id}`)?.remove();
    body.querySelectorAll("script").forEach((script) => script.remove());
    // a picture hides the caret, and leaves an empty style behind
    body.querySelectorAll('[style=""]').forEach((one) => one.removeAttribute("style"));
    const all = [...document.body.querySelectorAll("*")].filter((one) => !leftOut.has(one.id));
    const inputs = all.filter((one) => "value" in one)
      .map((one) => [one.value, one.checked, [...(one.selectedOptions ?? [])].length]);
    const scrolled = all.filter((one) => one.scrollTop || one.scrollLeft)
      .map((one) => [all.indexOf(one), Math.round(one.scrollTop), Math.round(one.scrollLeft)]);
    const selection = getSelection();
    // jQuery UI names a date picker by the moment at which its script was loaded
    const html = body.innerHTML.replace(/\bdp\d{13}\b/g, "dp");
    return JSON.stringify([
      html, inputs, scrolled, all.indexOf(document.activeElement), String(selection),
    ]);
  }

  function renumber() {
    numbers.clear();
    elements.length = 0;
  }

  return {
    look,
    renumber,
    middle,
    state,
    element: (number) => elements[number - 1]?.isConnected ? elements[number - 1] : null,
  };
})();
