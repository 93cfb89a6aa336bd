/* Links and points of charts lead to pages of the viewer without loading the application anew.

   Streamlit follows the browser's Back and Forward by `popstate`: it reads the address and runs the
   page that stands there. A click on a link does the same here: the address becomes a new entry of
   the history, and `popstate` is announced. Without this listener a link is still a link.

   Streamlit also puts the page that a run of the script shows into the address. A run that another
   click or Back has overtaken would put its own page there, so entries that leave the page are made
   here alone. */

const KEY = "longhaulNavigation";
const DOUBLE_CLICK_MS = 350; // Plotly takes two clicks within 300 ms as a double click
const pushState = window.history.pushState.bind(window.history);
let clicked;

function pageOf(url) {
  return url.pathname.split("/").pop();
}

function visit(address, event) {
  const url = new URL(address, document.baseURI);
  if (event.ctrlKey || event.metaKey || event.shiftKey) {
    window.open(url, "_blank", "noopener");
    return;
  }
  const leaves = pageOf(url) !== pageOf(window.location);
  pushState({}, "", url);
  window.dispatchEvent(new PopStateEvent("popstate", { state: {} }));
  if (leaves) document.querySelector('[data-testid="stMain"]')?.scrollTo(0, 0);
}

function pushStateOfThisPage(state, unused, url) {
  const leaves = url && pageOf(new URL(url, document.baseURI)) !== pageOf(window.location);
  if (!leaves) pushState(state, unused, url);
}

function followLink(event) {
  if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = event.composedPath().find((node) => node instanceof HTMLAnchorElement);
  if (!link || !link.href || link.target === "_blank" || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  if (url.origin !== window.location.origin || url.hash) return;
  if (!window[KEY].pages.includes(pageOf(url))) return;
  event.preventDefault();
  event.stopPropagation();
  visit(link.href, event);
}

/* How far the pointer is above or below a point, in pixels: where charts show all lines of one x
   together, a click is meant for the nearest. */
function distance(point, event) {
  const { top } = event.target.getBoundingClientRect();
  return Math.abs(point.yaxis.c2p(point.yaxis.d2c(point.y)) - (event.clientY - top));
}

/* A point with a text of its own (Plotly's customdata) that is an address leads there, once it is
   clear that the click is not the first of two, which take a zoom back. */
function followPoint({ points, event }) {
  const linked = points.filter(({ customdata }) => typeof customdata === "string");
  linked.sort((one, other) => distance(one, event) - distance(other, event));
  clearTimeout(clicked);
  if (!linked.length || event.detail > 1) return;
  clicked = setTimeout(() => visit(linked[0].customdata, event), DOUBLE_CLICK_MS);
}

function watchChart(event) {
  const chart = event.composedPath().find((node) => node.classList?.contains("js-plotly-plot"));
  if (!chart || !chart.on || chart.dataset.linked) return;
  chart.dataset.linked = "yes";
  chart.on("plotly_click", followPoint);
}

export default function ({ data }) {
  const known = window[KEY] !== undefined;
  window[KEY] = { pages: data.pages };
  if (known) return;
  window.history.pushState = pushStateOfThisPage;
  document.addEventListener("click", followLink, true);
  document.addEventListener("pointerover", watchChart, true);
}
