// Markdown as elements, built one by one: no text is read as markup, and only web and mail addresses become links.
// While a text streams in, blocks that are complete keep their elements, so nothing flickers. Maths stays as written.

import { copyButton } from "./copy.js";
import { highlighted } from "./highlight.js";
import { h, t } from "./kit.js";

/** Quotes and lists inside each other, beyond which text is shown as it is. */
const DEPTH_MAX = 8;
/** A paragraph longer than this is shown without inline formatting. */
const INLINE_MAX = 20_000;

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const MATHS = /^ {0,3}(\$\$|\\\[)/;

/** The blocks of a text: `{ is, raw, … }`, where `raw` is the source. `open` is true while more text may come. */
export function blocksOf(text, open = false) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const block = fence(lines, at) ?? maths(lines, at) ?? simple(lines, at) ?? quote(lines, at) ?? list(lines, at) ?? table(lines, at, open) ?? paragraph(lines, at);
    block.raw = lines.slice(at, block.end).join("\n");
    blocks.push(block);
    at = block.end;
  }
  return blocks;
}

function fence(lines, at) {
  const start = FENCE.exec(lines[at]);
  if (start === null) return undefined;
  const mark = start[1];
  let end = at + 1;
  const closes = (line) => /^ {0,3}(`{3,}|~{3,})[ \t]*$/.exec(line)?.[1].startsWith(mark) ?? false;
  while (end < lines.length && !closes(lines[end])) end += 1;
  return { is: "code", language: start[2].toLowerCase(), code: lines.slice(at + 1, end).join("\n"), closed: end < lines.length, end: Math.min(end + 1, lines.length) };
}

/** A displayed formula is one block of text, up to its closing mark. */
function maths(lines, at) {
  const start = MATHS.exec(lines[at]);
  if (start === null) return undefined;
  const close = start[1] === "$$" ? "$$" : "\\]";
  const first = lines[at].indexOf(start[1]) + 2;
  let end = at;
  while (end < lines.length && !lines[end].slice(end === at ? first : 0).includes(close)) end += 1;
  if (end === lines.length) return undefined;
  return { is: "maths", text: lines.slice(at, end + 1).join("\n"), end: end + 1 };
}

function simple(lines, at) {
  const heading = HEADING.exec(lines[at]);
  if (heading !== null) return { is: "heading", level: heading[1].length, text: heading[2], end: at + 1 };
  if (RULE.test(lines[at])) return { is: "rule", end: at + 1 };
  return undefined;
}

function quote(lines, at) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  if (end === at) return undefined;
  return { is: "quote", text: lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, "")).join("\n"), end };
}

function list(lines, at) {
  const first = ITEM.exec(lines[at]);
  if (first === null) return undefined;
  const isOrdered = /\d/.test(first[2]);
  const items = [];
  let end = at;
  let loose = false;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (item === null || /\d/.test(item[2]) !== isOrdered || RULE.test(lines[end])) break;
    const indent = item[1].length + item[2].length + Math.min(4, Math.max(1, item[3].length));
    const own = [lines[end].slice(indent)];
    end += 1;
    for (; end < lines.length; end += 1) {
      const line = lines[end];
      const isBlank = line.trim() === "";
      const isInside = /^[ \t]*/.exec(line)[0].replace(/\t/g, "    ").length >= Math.min(indent, item[1].length + 2);
      if (isBlank) {
        const next = lines[end + 1] ?? "";
        if (next.trim() === "" || !(/^[ \t]{2,}/.test(next) || ITEM.test(next))) break;
        loose = true;
        own.push("");
      } else if (isInside) own.push(line.replace(/\t/g, "    ").slice(Math.min(indent, /^ */.exec(line.replace(/\t/g, "    "))[0].length)));
      else if (ITEM.test(line) || starts(line) || own.at(-1) === "") break;
      else own.push(line);
    }
    items.push(own.join("\n").replace(/\n+$/, ""));
    while (end < lines.length && lines[end].trim() === "" && ITEM.test(lines[end + 1] ?? "")) end += 1;
  }
  return { is: "list", isOrdered, start: isOrdered ? Number.parseInt(first[2], 10) : undefined, items, loose, end };
}

/** Does this line begin a block other than a paragraph? */
function starts(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
}

const cells = (line) =>
  line
    .trim()
    .replace(/^\||\|$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));

function table(lines, at, open) {
  const isLast = at + 1 >= lines.length;
  const hasHead = lines[at].includes("|") && ((open && isLast && lines[at].trim().startsWith("|")) || (DIVIDER.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")));
  if (!hasHead) return undefined;
  const head = cells(lines[at]);
  const sides = isLast ? [] : cells(lines[at + 1]).map((cell) => (/^:-+:$/.test(cell) ? "center" : cell.endsWith(":") ? "right" : undefined));
  if (!isLast && sides.length !== head.length && !open) return undefined;
  let end = Math.min(at + 2, lines.length);
  const rows = [];
  for (; end < lines.length && lines[end].includes("|") && lines[end].trim() !== ""; end += 1) rows.push(cells(lines[end]).slice(0, head.length));
  return { is: "table", head, sides, rows, end };
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !starts(lines[end]) && !ITEM.test(lines[end]) && !MATHS.test(lines[end])) {
    if (DIVIDER.test(lines[end + 1] ?? "") && lines[end].includes("|")) break;
    end += 1;
  }
  return { is: "paragraph", text: lines.slice(at, end).join("\n"), end };
}

// ── inside a block ──

const PLAIN = /[^\\`*_~[\]!<$h\n]+/y;
const LINK = /!?\[([^[\]\n]{0,1000})\]\(\s{0,8}<?([^\s<>()]{1,2000}(?:\([^\s<>()]{0,200}\)[^\s<>()]{0,500})?)>?(?:\s{1,8}"[^"\n]{0,300}")?\s{0,8}\)/y;
const ADDRESS = /https?:\/\/[^\s<>"'`\\^{|}]{1,2000}/y;
const ANGLE = /<(https?:\/\/[^\s<>]{1,2000}|[\w.+-]{1,64}@[\w.-]{1,200})>/y;
const FORMULA = /\$(?![\s\d])[^$\n]{1,500}?[^\s\\]\$(?!\d)|\\\([^\n]{1,500}?\\\)/y;
const HALF_LINK = /!?\[[^[\]\n]{0,1000}(\](\([^)\n]{0,2000})?)?$/y;
const MARKS = [
  ["**", "strong"],
  ["__", "strong"],
  ["~~", "del"],
  ["*", "em"],
  ["_", "em"],
];

/** The nodes of a line of text. `open` closes what is still being written, so that marks do not flash. */
export function inline(text, open = false, depth = 0) {
  if (text.length > INLINE_MAX || depth > DEPTH_MAX) return [text];
  const nodes = [];
  /** Marks for which no end was found: looking again would find none. */
  const lone = new Set();
  let at = 0;
  const take = (pattern) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  while (at < text.length) {
    const plain = take(PLAIN);
    const found = plain === null ? special(text, at, { take, lone, open, depth }) : { node: plain[0], end: at + plain[0].length };
    nodes.push(found.node);
    at = found.end;
  }
  return nodes;
}

function special(text, at, context) {
  const { take, open } = context;
  const one = text[at];
  const match = (pattern, make) => {
    const found = take(pattern);
    return found === null ? undefined : { node: make(found), end: at + found[0].length };
  };
  let found;
  if (one === "\n") return { node: / {2}$/.test(text.slice(Math.max(0, at - 2), at)) || text[at - 1] === "\\" ? h("br") : "\n", end: at + 1 };
  if (one === "\\" && text[at + 1] === "\n") return { node: "", end: at + 1 };
  if (one === "$" || (one === "\\" && text[at + 1] === "(")) found = match(FORMULA, ([formula]) => h("span", { class: "maths" }, formula));
  if (one === "\\" && found === undefined && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) return { node: text[at + 1], end: at + 2 };
  if (one === "`") found = codeSpan(text, at, context);
  if (one === "[" || (one === "!" && text[at + 1] === "[")) {
    found = match(LINK, ([whole, label, address]) => (whole.startsWith("!") ? picture(label, address) : link(address, inlineLabel(label, context), label)) ?? whole);
    if (found === undefined && open) found = match(HALF_LINK, ([half]) => half.replace(/^!?\[/, "").replace(/\](\(.*)?$/, ""));
  }
  if (one === "<") found = match(ANGLE, ([whole, address]) => link(address.includes("@") && !address.includes("/") ? `mailto:${address}` : address, address, address) ?? whole);
  if (one === "h" && !/\w/.test(text[at - 1] ?? "")) found = bare(match(ADDRESS, ([address]) => address));
  if ("*_~".includes(one)) found = emphasis(text, at, context);
  return found ?? { node: one, end: at + 1 };
}

const inlineLabel = (label, { depth }) => (label.includes("](") ? label : inline(label.replaceAll(/https?:\/\//g, (scheme) => scheme), false, depth + 1).map((node) => (node instanceof HTMLAnchorElement ? node.textContent : node)));

function codeSpan(text, at, { lone, open }) {
  const mark = /^`+/.exec(text.slice(at, at + 64))[0];
  if (lone.has(mark)) return { node: mark, end: at + mark.length };
  let end = at + mark.length;
  for (;;) {
    end = text.indexOf(mark, end);
    if (end === -1) break;
    if (text[end + mark.length] !== "`" && text[end - 1] !== "`") {
      return { node: h("code", {}, text.slice(at + mark.length, end).replaceAll("\n", " ").replace(/^ (.*[^ ].*) $/, "$1")), end: end + mark.length };
    }
    while (text[end] === "`") end += 1;
  }
  if (open && mark.length === 1 && !text.slice(at).includes("\n\n")) return { node: h("code", {}, text.slice(at + 1)), end: text.length };
  lone.add(mark);
  return { node: mark, end: at + mark.length };
}

function emphasis(text, at, { lone, open, depth }) {
  const [mark, tag] = MARKS.find(([mark]) => text.startsWith(mark, at)) ?? [];
  if (mark === undefined) return undefined;
  const after = text[at + mark.length] ?? "";
  const isInWord = mark[0] === "_" && /[\p{L}\p{N}]/u.test(text[at - 1] ?? "");
  if (lone.has(mark) || isInWord || /^\s?$/.test(after)) return { node: mark, end: at + mark.length };
  const end = ending(text, at + mark.length, mark);
  if (end !== -1) return { node: h(tag, {}, inline(text.slice(at + mark.length, end), false, depth + 1)), end: end + mark.length };
  if (open && mark.length === 2) return { node: h(tag, {}, inline(text.slice(at + mark.length).replace(/[*_~]$/, ""), true, depth + 1)), end: text.length };
  lone.add(mark);
  return { node: mark, end: at + mark.length };
}

/** Where a mark ends what it began: not after white space, not inside a longer mark, and `_` not inside a word. */
function ending(text, from, mark) {
  for (let end = text.indexOf(mark, from + 1); end !== -1; end = text.indexOf(mark, end + 1)) {
    const isLonger = mark.length === 1 && (text[end + 1] === mark || text[end - 1] === mark);
    const isInWord = mark[0] === "_" && /[\p{L}\p{N}]/u.test(text[end + mark.length] ?? "");
    if (!isLonger && !isInWord && !/\s/.test(text[end - 1]) && text[end - 1] !== "\\") return mark.length === 2 && text[end + 2] === mark[0] && text[end + 3] !== mark[0] ? end + 1 : end;
    if (isLonger) while (text[end + 1] === mark) end += 1;
  }
  return -1;
}

/** An address in the text, without the punctuation of its sentence. */
function bare(found) {
  if (found === undefined) return undefined;
  let address = found.node.replace(/[.,;:!?*_~\]]+$/, "");
  if (address.endsWith(")") && !address.includes("(")) address = address.slice(0, -1);
  return { node: link(address, address, address) ?? address, end: found.end - (found.node.length - address.length) };
}

/** A link that leaves this page knowing nothing of it; undefined for other schemes. What it says and where it leads agree. */
function link(address, children, label) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return undefined;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return undefined;
  const claimed = /^[a-z]+:\/\/([^/?#\s]+)|^((?:[\w-]+\.)+[a-z]{2,})(?:[/?#]|$)/i.exec(label.trim());
  const host = claimed?.[1] ?? claimed?.[2];
  const isHonest = host === undefined || host.toLowerCase() === url.host;
  return h("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow", title: url.href }, children, isHonest ? undefined : h("span", { class: "faint" }, ` (${url.host || url.href})`));
}

/** A picture elsewhere is not loaded: its server would learn who reads. It is a link. */
function picture(label, address) {
  const text = t("picture", { name: label || address });
  return link(address, text, text) ?? undefined;
}

// ── elements ──

function element(block, open, depth) {
  switch (block.is) {
    case "code":
      return codeBlock(block.code, block.language, !block.closed && open);
    case "maths":
      return h("p", { class: "maths" }, block.text);
    case "heading":
      // The page has its own headings above these.
      return h(`h${Math.min(6, block.level + 2)}`, {}, inline(block.text, open));
    case "rule":
      return h("hr");
    case "quote":
      return h("blockquote", {}, nested(block.text, open, depth));
    case "list":
      return h(block.isOrdered ? "ol" : "ul", { start: block.start === 1 ? undefined : block.start }, block.items.map((item, index) => listItem(item, block.loose, open && index === block.items.length - 1, depth)));
    case "table":
      return tableOf(block, open);
    default:
      return h("p", {}, inline(block.text, open));
  }
}

function nested(text, open, depth) {
  if (depth >= DEPTH_MAX) return h("p", {}, text);
  const blocks = blocksOf(text, open);
  return blocks.map((block, index) => element(block, open && index === blocks.length - 1, depth + 1));
}

function listItem(text, loose, open, depth) {
  const task = /^\[([ xX])\] +/.exec(text);
  const inner = nested(task === null ? text : text.slice(task[0].length), open, depth);
  const children = !loose && inner[0]?.localName === "p" ? [...inner[0].childNodes, ...inner.slice(1)] : inner;
  const box = task === null ? undefined : [h("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": t(task[1] === " " ? "task-open" : "task-completed") }), " "];
  return h("li", { class: task === null ? undefined : "task" }, box, children);
}

function tableOf({ head, sides, rows }, open) {
  const cell = (tag, text, index, isLast) => h(tag, { scope: tag === "th" ? "col" : undefined, class: sides[index] === undefined ? undefined : `to-${sides[index]}` }, inline(text, open && isLast));
  const body = rows.map((row) => h("tr", {}, head.map((_, index) => cell("td", row[index] ?? "", index, true))));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": t("table") }, h("table", {}, h("thead", {}, h("tr", {}, head.map((text, index) => cell("th", text, index, true)))), h("tbody", {}, body)));
}

/** Code with its language, highlighted, and a button that copies it. */
export function codeBlock(code, language, isStreaming = false) {
  const body = h("code", {}, isStreaming ? code : highlighted(code, language));
  const label = language === "" ? t("code") : language;
  return h("figure", { class: "code-block" }, h("figcaption", {}, h("span", { class: "language" }, label), copyButton(() => code)), h("pre", { tabindex: "0", "aria-label": label }, body));
}

/** A text that grows: only blocks whose source changed are made anew. */
export class Markdown {
  #raws = [];
  #wasOpen = false;

  constructor(root) {
    this.root = root;
  }

  show(text, open = false) {
    const blocks = blocksOf(text, open);
    const last = blocks.length - 1;
    let same = 0;
    while (same < blocks.length && this.#raws[same] === blocks[same].raw) same += 1;
    // The last block is drawn once more when the text is complete.
    if (this.#wasOpen !== open) same = Math.min(same, Math.max(0, last));
    for (let index = same; index < blocks.length; index += 1) {
      const isOpen = open && index === last;
      const old = this.root.children[index];
      if (old !== undefined && grow(old, blocks[index], isOpen)) continue;
      const fresh = element(blocks[index], isOpen, 0);
      if (old === undefined) this.root.append(fresh);
      else old.replaceWith(fresh);
    }
    while (this.root.children.length > blocks.length) this.root.lastElementChild.remove();
    this.#raws = blocks.map(({ raw }) => raw);
    this.#wasOpen = open;
  }
}

/** Code that is still being written grows in place, so its scroll position and selection stay. */
function grow(old, block, isOpen) {
  if (block.is !== "code" || !isOpen || block.closed || !old.classList.contains("code-block")) return false;
  const body = old.querySelector("code");
  if (!block.code.startsWith(body.textContent) || body.childElementCount > 0) return false;
  body.append(block.code.slice(body.textContent.length));
  return true;
}
