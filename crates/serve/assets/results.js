// What a tool gave, as what it is: a diff, a picture, a value to unfold, a file with its size and link, or text.

import { copyButton } from "./copy.js";
import { diffLines, isDiff } from "./highlight.js";
import { jsonView } from "./json-view.js";
import { bytes, h, t } from "./kit.js";

/** Longer text is shown up to here; the button copies all of it. */
const SHOWN_MAX = 20_000;
const PICTURES_MAX = 8;
const FILES_MAX = 20;
const PICTURE_CHARS_MAX = 8 * 1024 * 1024;
/** Formats that show pixels and nothing else. */
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** The element of a result. `total` is the size before the server cut it. */
export function resultView(text, total) {
  const value = valueOf(text);
  const cut = total === undefined || total === null ? undefined : h("p", { class: "faint" }, t("cut-from", { name: bytes(total) }));
  if (value === undefined) return h("div", { class: "result" }, isDiff(text) ? diffView(text) : textView(text), cut);
  const pictures = picturesIn(value).map(pictureView).filter(Boolean);
  const diff = diffIn(value);
  return h("div", { class: "result" }, fileView(value), filesIn(value).map(linkView), pictures, diff === undefined ? undefined : diffView(diff), jsonView(withoutPictures(value)), cut);
}

/** The value of a text in JSON; undefined for other texts and for plain numbers and words. */
function valueOf(text) {
  if (typeof text !== "string") return typeof text === "object" && text !== null ? text : undefined;
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function framed(name, text, body) {
  return h("figure", { class: `code-block ${name}` }, h("figcaption", {}, h("span", { class: "language" }, t(name)), copyButton(() => text)), h("pre", { tabindex: "0", "aria-label": t(name) }, body));
}

export function diffView(text) {
  return framed("diff", text, diffLines(text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text));
}

function textView(text) {
  return framed("plain-text", text, text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text);
}

/** A diff in a member of its own. */
function diffIn(value) {
  return ["diff", "patch"].map((name) => value[name]).find((text) => typeof text === "string" && isDiff(text));
}

/** A file by its path and size. */
function fileView(value) {
  const path = value.path ?? value.file_path ?? value.file;
  const size = value.bytes ?? value.size ?? value.size_bytes;
  if (typeof path !== "string" || !Number.isFinite(size)) return undefined;
  return h("p", { class: "file" }, h("code", {}, path), " ", h("span", { class: "faint" }, bytes(size)));
}

/** Files that a value names by their address, as MCP's `resource_link` and `resource` do. */
function filesIn(value, depth = 0, found = []) {
  if (typeof value !== "object" || value === null || depth > 4 || found.length >= FILES_MAX) return found;
  if (typeof value.uri === "string" && value.uri !== "") {
    const content = typeof value.blob === "string" ? value.blob.length * 0.75 : typeof value.text === "string" ? new Blob([value.text]).size : undefined;
    found.push({ uri: value.uri, name: value.title ?? value.name, size: value.size ?? content });
  } else {
    for (const child of Object.values(value)) filesIn(child, depth + 1, found);
  }
  return found;
}

/** A link for the web only; any other address is text. What the tool calls the file stands before its address, never for it. */
function linkView({ uri, name, size }) {
  const web = webAddress(uri);
  const address = web === undefined ? h("code", {}, uri) : h("a", { href: web, target: "_blank", rel: "noopener noreferrer nofollow" }, uri);
  const isNamed = typeof name === "string" && name !== uri;
  return h("p", { class: "file", dir: "auto" }, isNamed ? [h("b", {}, name), " "] : undefined, address, Number.isFinite(size) ? [" ", h("span", { class: "faint" }, bytes(Math.floor(size)))] : undefined);
}

function webAddress(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:"].includes(url.protocol) ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** Pictures inside a value, as MCP and model services write them. */
function picturesIn(value, depth = 0, found = []) {
  if (typeof value !== "object" || value === null || depth > 4 || found.length >= PICTURES_MAX) return found;
  const source = value.source ?? value;
  const type = source.mimeType ?? source.media_type ?? source.mime_type;
  if (PICTURES.includes(type) && typeof source.data === "string" && source.data.length <= PICTURE_CHARS_MAX) found.push({ type, data: source.data });
  else for (const child of Object.values(value)) picturesIn(child, depth + 1, found);
  return found;
}

function withoutPictures(value) {
  return JSON.parse(JSON.stringify(value, (name, child) => (name === "data" && typeof child === "string" && child.length > 200 ? t("picture-data", { n: bytes(Math.floor(child.length * 0.75)) }) : child)));
}

/** A picture from its own bytes; nothing is loaded from elsewhere. */
export function pictureView({ type, data }) {
  let raw;
  try {
    raw = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
  } catch {
    return undefined;
  }
  const address = URL.createObjectURL(new Blob([raw], { type }));
  const size = bytes(raw.length);
  const image = h("img", { src: address, alt: t("picture-of", { name: size }), class: "picture" });
  image.addEventListener("error", () => image.replaceWith(h("p", { class: "faint" }, t("picture-broken", { name: size }))));
  return h("figure", { class: "picture-box" }, image, h("figcaption", { class: "faint" }, `${type} · ${size}`));
}
