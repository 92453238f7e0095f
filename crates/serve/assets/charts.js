// Charts as SVG, drawn from numbers alone: bars over time, a distribution, shares. One colour in several depths.

import { brush } from "./brush.js";
import { clock, h, number, span, svg, t } from "./kit.js";

/** Kinds with a depth of their own; the rest is drawn together. */
const DEPTHS = 5;
const HEIGHT = 220;
const MARGIN = { left: 40, right: 8, top: 10, bottom: 26 };

/** Faults over time, one bar a bucket, the most frequent kind at the bottom. */
export function overTime(root, buckets, kinds, titles, chosen = () => {}) {
  const top = kinds.slice(0, DEPTHS).map((kind) => kind.kind);
  const names = [...top, "other"];
  const bars = buckets.map(({ at, by_kind: byKind }) => {
    const counts = names.map(() => 0);
    for (const [kind, n] of Object.entries(byKind)) counts[top.includes(kind) ? top.indexOf(kind) : DEPTHS] += n;
    return { at, counts, sum: counts.reduce((sum, n) => sum + n, 0) };
  });
  const width = Math.max(300, root.clientWidth);
  const max = nice(Math.max(1, ...bars.map((bar) => bar.sum)));
  const y = (n) => HEIGHT - MARGIN.bottom - (n / max) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const step = (width - MARGIN.left - MARGIN.right) / Math.max(1, bars.length);
  const sum = bars.reduce((all, bar) => all + bar.sum, 0);
  const length = bars.length > 1 ? Date.parse(bars[1].at) - Date.parse(bars[0].at) : 0;
  const label = t("chart-of", { n: number(sum), of: number(Math.max(0, ...bars.map((bar) => bar.sum))), time: span(length) });
  const band = svg("rect", { class: "band", y: MARGIN.top, height: HEIGHT - MARGIN.top - MARGIN.bottom, x: 0, width: 0 });
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "application", tabindex: "0", "aria-label": label, class: "brushable" }, band, grid(width, max, y));
  const mark = (from, to) => {
    band.setAttribute("x", from === undefined ? 0 : (MARGIN.left + from * step).toFixed(1));
    band.setAttribute("width", from === undefined ? 0 : ((to - from + 1) * step).toFixed(1));
  };
  const place = (event) => {
    const { left, width: shown } = picture.getBoundingClientRect();
    const x = ((event.clientX - left) / shown) * width;
    return Math.max(0, Math.min(bars.length - 1, Math.floor((x - MARGIN.left) / step)));
  };
  const choose = (from, to) => {
    mark(from, to);
    chosen(from, to, bars);
  };
  brush(picture, bars.length, { place, mark, chosen: choose });
  bars.forEach((bar, index) => {
    const x = MARGIN.left + index * step;
    const column = svg("g", { class: "bar", "data-sum": bar.sum }, svg("title", {}, `${clock(bar.at)}\n${names.map((name, depth) => (bar.counts[depth] > 0 ? `${titles(name)}: ${bar.counts[depth]}` : "")).filter(Boolean).join("\n")}`));
    let below = 0;
    bar.counts.forEach((n, depth) => {
      if (n === 0) return;
      column.append(svg("rect", { class: `depth-${depth}`, x: (x + step * 0.12).toFixed(1), width: Math.max(1, step * 0.76).toFixed(1), y: y(below + n).toFixed(1), height: Math.max(1, y(below) - y(below + n)).toFixed(1) }));
      below += n;
    });
    picture.append(column);
  });
  for (const index of new Set([0, Math.floor(bars.length / 2), bars.length - 1])) {
    if (bars[index] === undefined) continue;
    const anchor = index === 0 ? "start" : index === bars.length - 1 ? "end" : "middle";
    const x = index === bars.length - 1 ? width - MARGIN.right : MARGIN.left + index * step;
    picture.append(svg("text", { class: "axis", x, y: HEIGHT - 6, "text-anchor": anchor }, clock(bars[index].at)));
  }
  const used = names.filter((_, depth) => bars.some((bar) => bar.counts[depth] > 0));
  const legend = h("ul", { class: "legend" }, used.map((name) => h("li", {}, h("i", { class: `depth-${names.indexOf(name)}` }), titles(name))));
  root.replaceChildren(picture, legend);
  return { bars, mark, names };
}

function grid(width, max, y) {
  return [0, max / 2, max].filter(Number.isInteger).map((n) => svg("g", { class: "grid" }, svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(n), y2: y(n) }), svg("text", { class: "axis", x: MARGIN.left - 8, y: y(n) + 4, "text-anchor": "end" }, number(n))));
}

/** A number that reads well and is not smaller. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= value) ?? value;
}

/** How long recoveries took: a bar for each class. */
export function distribution(root, recovery) {
  const classes = recovery.histogram ?? [];
  const sum = classes.reduce((all, { n }) => all + n, 0);
  if (sum === 0) return nothing(root);
  const last = classes.findLastIndex(({ n }) => n > 0);
  const first = classes.findIndex(({ n }) => n > 0);
  const shown = classes.slice(Math.max(0, first - 1), last + 2);
  const max = Math.max(...shown.map(({ n }) => n));
  const rows = shown.map(({ le, n }, index) => {
    const name = le === null || le === undefined ? `> ${span(shown[index - 1]?.le ?? 0)}` : `≤ ${span(le)}`;
    return share(name, n, max, number(n));
  });
  const quantiles = h("p", { class: "quantiles" }, ["p50", "p90", "p99"].map((name) => h("span", {}, h("b", {}, span(recovery[name] ?? NaN)), ` ${name}`)));
  root.replaceChildren(quantiles, h("div", { class: "shares" }, rows));
}

/** One row of a list with a bar: a name, how much, out of how much. */
function share(name, n, max, text, href) {
  const bar = svg("svg", { class: "share-bar", width: "100%", height: 8, preserveAspectRatio: "none", viewBox: "0 0 100 8", "aria-hidden": "true" }, svg("rect", { x: 0, y: 0, height: 8, rx: 1, width: Math.max(n > 0 ? 0.8 : 0, (n / max) * 100).toFixed(2) }));
  return h("div", { class: "share" }, href === undefined ? h("span", { class: "share-name" }, name) : h("a", { class: "share-name", href }, name), bar, h("span", { class: "share-count" }, text));
}

/** Faults by something: `name(row)` says what, `link(row)` where to. */
export function shares(root, rows, name, link = () => undefined) {
  const list = (rows ?? []).filter((row) => (row.count ?? row.n) > 0).slice(0, 12);
  if (list.length === 0) return nothing(root);
  const max = Math.max(...list.map((row) => row.count ?? row.n));
  root.replaceChildren(h("div", { class: "shares" }, list.map((row) => share(name(row), row.count ?? row.n, max, number(row.count ?? row.n), link(row)))));
}

export function nothing(root) {
  root.replaceChildren(h("p", { class: "faint" }, t("none")));
}
