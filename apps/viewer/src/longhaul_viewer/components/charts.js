/* A Plotly figure. While its run goes on it is drawn anew in the same place, so that Plotly keeps
   what the reader zoomed (`uirevision`). Colours of text are the page's. */

const CONFIG = { displayModeBar: false };
const shown = new WeakMap();

/* The library, loaded once for all charts. */
function library(path) {
  window.longhaulPlotly ??= new Promise((loaded, failed) => {
    const script = document.createElement("script");
    script.src = path;
    script.onload = () => loaded(window.Plotly);
    script.onerror = () => failed(new Error(`${path} did not load`));
    document.head.append(script);
  });
  return window.longhaulPlotly;
}

function themed(layout, element) {
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim();
  const font = { ...layout.font, color: colour("--st-text-color"), family: style.fontFamily };
  const bordercolor = "rgba(128, 128, 140, .5)";
  return { ...layout, font, hoverlabel: { bgcolor: colour("--st-background-color"), bordercolor, font } };
}

async function draw(place, { figure, plotly }) {
  const { data, layout } = JSON.parse(figure);
  place.style.height = `${layout.height}px`;
  shown.set(place, figure);
  try {
    const { react, Plots } = await library(plotly);
    if (shown.get(place) !== figure) return;  // a newer figure came meanwhile
    await react(place, data, themed(layout, place), CONFIG);
    place.watcher ??= new ResizeObserver(() => Plots.resize(place));
    place.watcher.observe(place);
  } catch (error) {
    place.textContent = `This chart cannot be drawn (${error.message}). Reload the page; if the viewer was stopped, start it again.`;
  }
}

export default function ({ data, parentElement }) {
  let place = parentElement.querySelector(".chart");
  if (!place) {
    place = document.createElement("div");
    place.className = "chart";
    parentElement.append(place);
  }
  draw(place, data);
  // An element that only moves is cleaned up as well: what stands on the page is kept.
  return () => setTimeout(() => {
    if (place.isConnected) return;
    shown.delete(place);
    place.watcher?.disconnect();
    window.Plotly?.purge(place);
  });
}
