// A JSON value to fold and to search. Only what is unfolded is in the document.

import { copyButton } from "./copy.js";
import { h, number, refill, t } from "./kit.js";

/** Members that are shown at first, and that each press adds. */
const MEMBERS = 100;
/** Values that a search looks at, and results that it shows. */
const SEARCH_MAX = 50_000;
const FOUND_MAX = 100;
/** Values with more members than this have a search field. */
const SEARCHABLE = 12;
const PREVIEW = 60;

/** The value as a tree with a search field and a button that copies it. */
export function jsonView(value) {
  const tree = h("div", { class: "json-tree" }, node(undefined, value, 0));
  const tools = h("div", { class: "json-tools" });
  if (countOf(value, SEARCHABLE + 1) > SEARCHABLE) tools.append(searchField(value, tree));
  tools.append(copyButton(() => JSON.stringify(value, null, 2)));
  return h("div", { class: "json" }, tools, tree);
}

function searchField(value, tree) {
  const root = tree.firstChild;
  const field = h("input", { type: "search", placeholder: t("json-search"), "aria-label": t("json-search"), spellcheck: "false" });
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    if (wanted === "") return void tree.replaceChildren(root);
    const found = search(value, wanted);
    refill(tree, h("p", { class: "faint", role: "status" }, t(found.length === FOUND_MAX ? "json-found-many" : "json-found", { n: number(found.length) })), found.map(([path, leaf]) => row(path, leaf)));
  });
  return field;
}

/** Paths and values whose name or text contains `wanted`. */
export function search(value, wanted) {
  const found = [];
  const stack = [["", "", value]];
  for (let seen = 0; stack.length > 0 && seen < SEARCH_MAX && found.length < FOUND_MAX; seen += 1) {
    const [path, name, here] = stack.pop();
    const isLeaf = typeof here !== "object" || here === null;
    if (name.toLowerCase().includes(wanted) || (isLeaf && String(here).toLowerCase().includes(wanted))) found.push([path, here]);
    if (!isLeaf) for (const [key, child] of Object.entries(here).reverse()) stack.push([Array.isArray(here) ? `${path}[${key}]` : path === "" ? key : `${path}.${key}`, key, child]);
  }
  return found;
}

/** How many values there are inside, up to a bound. */
function countOf(value, max) {
  let count = 0;
  const stack = [value];
  while (stack.length > 0 && count < max) {
    const here = stack.pop();
    if (typeof here !== "object" || here === null) continue;
    const children = Object.values(here);
    count += children.length;
    stack.push(...children.slice(0, max));
  }
  return count;
}

function node(name, value, depth) {
  if (typeof value !== "object" || value === null) return row(name, value);
  const entries = Object.entries(value);
  if (entries.length === 0) return row(name, value);
  const body = h("div", { class: "json-body" });
  const summary = h("summary", {}, name === undefined ? undefined : [h("span", { class: "json-name" }, name), ": "], h("span", { class: "faint" }, sizeOf(value), h("span", { class: "json-preview" }, preview(value))));
  const box = h("details", { class: "json-node" }, summary, body);
  const unfold = () => {
    if (box.open && body.childElementCount === 0) more(body, entries, depth);
  };
  box.addEventListener("toggle", unfold);
  box.open = depth === 0 && entries.length <= 20;
  unfold();
  return box;
}

function more(body, entries, depth, from = 0) {
  body.append(...entries.slice(from, from + MEMBERS).map(([key, child]) => node(key, child, depth + 1)));
  const left = entries.length - from - MEMBERS;
  if (left <= 0) return;
  const button = h("button", { type: "button", class: "plain small" }, t("json-more", { n: number(left) }));
  button.addEventListener("click", () => {
    button.remove();
    more(body, entries, depth, from + MEMBERS);
  });
  body.append(button);
}

function row(name, value) {
  const isText = typeof value === "string";
  const text = typeof value === "object" && value !== null ? sizeOf(value) + preview(value) : isText ? value : String(value);
  return h("div", { class: "json-row" }, name === undefined || name === "" ? undefined : [h("span", { class: "json-name" }, name), ": "], h("span", { class: isText ? "json-text" : "json-value" }, text));
}

const sizeOf = (value) => (Array.isArray(value) ? `[${number(value.length)}] ` : `{${number(Object.keys(value).length)}} `);

function preview(value) {
  const text = JSON.stringify(value, (key, child) => (key !== "" && typeof child === "object" && child !== null ? (Array.isArray(child) ? `[${child.length}]` : "{…}") : typeof child === "string" && child.length > 24 ? `${child.slice(0, 24)}…` : child));
  return text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text;
}
