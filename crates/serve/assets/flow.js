// What follows what: the ways turns went through faults to their end, as a flow from left to right. Ends stand in one
// column at the right, whatever the length of the way.

import { h, number, svg, t } from "./kit.js";
import { nothing } from "./charts.js";

const PATHS_MAX = 14;
const STEPS_MAX = 5;
const NODE = 10;
const GAP = 16;
/** Names have at most this many lines above their node. */
const LINES = 2;
const LINE = 13;
/** The words for the ways in which a turn ends. */
const ENDS = { end_turn: "end-answered", cancelled: "end-cancelled", running: "end-running", failed: "end-failed", refusal: "end-refusal", max_tokens: "end-tokens", max_turn_requests: "end-requests" };

/** Nodes and links of ways; a node is a kind at a depth, links join what follows each other. */
export function flowOf(paths) {
  const nodes = new Map();
  const links = new Map();
  const node = (column, name, isEnd) => {
    const key = `${column}:${name}`;
    if (!nodes.has(key)) nodes.set(key, { key, column, name, isEnd, n: 0 });
    return nodes.get(key);
  };
  const ways = [...paths].sort((a, b) => b.n - a.n).slice(0, PATHS_MAX).map(({ path, n }) => ({ steps: [...path.slice(0, -1).slice(0, STEPS_MAX), path.at(-1)], n }));
  const columns = Math.max(0, ...ways.map(({ steps }) => steps.length));
  for (const { steps, n } of ways) {
    let before;
    steps.forEach((name, index) => {
      const isEnd = index === steps.length - 1;
      const now = node(isEnd ? columns - 1 : index, name, isEnd);
      now.n += n;
      if (before !== undefined) {
        const key = `${before.key}→${now.key}`;
        if (!links.has(key)) links.set(key, { from: before, to: now, n: 0 });
        links.get(key).n += n;
      }
      before = now;
    });
  }
  return { nodes: [...nodes.values()], links: [...links.values()], columns };
}

/** Draws it. `title(kind)` names a kind, `href(kind)` explains it. */
export function drawFlow(root, paths, title, href) {
  if ((paths ?? []).length === 0) return nothing(root);
  const { nodes, links, columns } = flowOf(paths);
  const width = Math.max(300, root.clientWidth);
  const byColumn = Array.from({ length: columns }, (_, column) => nodes.filter((node) => node.column === column).sort((a, b) => b.n - a.n));
  const most = Math.max(...byColumn.map((column) => column.length));
  const sums = byColumn.map((column) => column.reduce((sum, node) => sum + node.n, 0));
  const above = LINES * LINE + GAP;
  const height = Math.max(240, most * 78);
  const scale = Math.min(...byColumn.map((column, index) => (height - column.length * above) / Math.max(1, sums[index])), 24);
  byColumn.forEach((column, index) => {
    let y = LINES * LINE + 3;
    for (const node of column) {
      node.x = index * spaceOf(columns, width);
      node.y = y;
      node.h = Math.max(3, node.n * scale);
      node.out = node.in = 0;
      y += node.h + above;
    }
  });
  const bottom = Math.max(...nodes.map((node) => node.y + node.h)) + 8;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${bottom}`, width, height: bottom, role: "group", "aria-label": t("flow-of") });
  for (const link of [...links].sort((a, b) => a.to.y - b.to.y)) {
    const thick = Math.max(1.5, link.n * scale);
    const y1 = link.from.y + link.from.out + thick / 2;
    const y2 = link.to.y + link.to.in + thick / 2;
    link.from.out += thick;
    link.to.in += thick;
    const [x1, x2] = [link.from.x + NODE, link.to.x];
    const middle = (x1 + x2) / 2;
    picture.append(svg("path", { class: link.to.isEnd ? `link ${endOf(link.to.name)}` : "link", d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`, "stroke-width": thick.toFixed(1), "data-n": link.n }, svg("title", {}, `${title(link.from.name)} → ${title(link.to.name)}: ${number(link.n)}`)));
  }
  for (const node of nodes) {
    picture.append(svg("rect", { class: node.isEnd ? `node ${endOf(node.name)}` : "node", x: node.x, y: node.y, width: NODE, height: node.h, rx: 1.5 }));
    const lines = labelOf(title(node.name), ` · ${number(node.n)}`, columns, width);
    const label = svg("text", { x: node.x, y: node.y - 5 - (lines.length - 1) * LINE }, lines.map((line, index) => svg("tspan", { x: node.x, dy: index === 0 ? 0 : LINE }, line)));
    picture.append(node.isEnd ? label : svg("a", { href: href(node.name) }, label, svg("title", {}, title(node.name))));
  }
  root.replaceChildren(picture, h("p", { class: "unseen" }, paths.slice(0, PATHS_MAX).map(({ path, n }) => `${path.map(title).join(" → ")}: ${n}. `)));
}

const labelRoom = (columns, width) => Math.min(150, width / Math.max(2, columns));

/** From one column to the next. */
const spaceOf = (columns, width) => (columns === 1 ? 0 : (width - NODE - labelRoom(columns, width)) / (columns - 1));

/** The width of a letter in pixels, and of a Chinese one. */
const LETTER = 6.3;
const HAN = 11.5;

const widthOf = (text) => [...text].reduce((sum, char) => sum + (char > "\u2e7f" ? HAN : LETTER), 0);

/** A name in lines that end before the next column begins, and its number. Only what needs more lines is cut. */
function labelOf(text, suffix, columns, width) {
  const room = Math.max(60, columns === 1 ? width : spaceOf(columns, width)) - 2 * LETTER;
  const lines = [""];
  // Words stay whole; Chinese breaks anywhere.
  for (const piece of text.match(/[\u2e80-\uffff]|[^\s\u2e80-\uffff]+\s*|\s+/g) ?? []) {
    const isFull = widthOf((lines.at(-1) + piece).trimEnd()) > room;
    if (isFull && lines.at(-1) !== "" && lines.length < LINES) lines.push(piece);
    else lines.push(lines.pop() + piece);
  }
  let last = lines.pop().trimEnd();
  if (widthOf(last + suffix) > room && lines.length < LINES - 1) return [...lines, last, suffix.trimStart()];
  const isCut = widthOf(last + suffix) > room;
  while (last !== "" && widthOf(`${last}…${suffix}`) > room && isCut) last = [...last].slice(0, -1).join("");
  return [...lines.map((line) => line.trimEnd()), `${last}${isCut ? "…" : ""}${suffix}`];
}

/** Ends that are good are drawn quietly. */
export function endOf(name) {
  return ["end_turn", "max_tokens"].includes(name) ? "good" : "bad";
}

/** An end in words. */
export const endWords = (name) => ENDS[name] && t(ENDS[name]);
