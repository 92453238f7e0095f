// What every page needs: words, elements, times. Text becomes text: nothing here reads markup.

const words = JSON.parse(document.querySelector('meta[name="words"]').content);

/** The reader's language: `en`, `zh`. */
export const language = document.documentElement.lang;

/** A text of the page, with `{name}` filled in. */
export function t(id, args = {}) {
  const text = words[id] ?? id;
  return text.replace(/\{(\w+)\}/g, (hole, name) => (name in args ? String(args[name]) : hole));
}

/** The element with this id. */
export const at = (id) => document.getElementById(id);

/** An element. `props` are attributes; `on` has listeners; children are elements or text. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for pictures. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Puts new children in place of the old ones. */
export function refill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/**
 * Brings the children up to date. What is still there stays, and with it the focus and what is selected; elements of a
 * list are told apart by `data-key`. Children that stay keep the listeners that they were made with.
 */
export function update(element, ...children) {
  const fresh = document.createDocumentFragment();
  add(fresh, children);
  const focused = document.activeElement;
  merge(element, fresh);
  // A browser takes the focus from what is moved.
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
  return element;
}

const isSame = (one, other) => one.nodeName === other.nodeName && one.dataset?.key === other.dataset?.key;

function merge(element, fresh) {
  const keys = new Set([...fresh.children].map((child) => child.dataset.key));
  for (const child of [...element.children]) if (!keys.has(child.dataset.key)) child.remove();
  let place = element.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    let found = place;
    while (found !== null && wanted.dataset?.key !== undefined && !isSame(found, wanted)) found = found.nextSibling;
    if (found === null || !isSame(found, wanted)) {
      element.insertBefore(wanted, place);
      continue;
    }
    if (found === place) place = place.nextSibling;
    else element.insertBefore(found, place);
    mergeInto(found, wanted);
  }
  while (place !== null) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

/** Makes a node equal to another one of its name. */
function mergeInto(old, wanted) {
  if (old.isEqualNode(wanted)) return;
  if (old.nodeType === Node.TEXT_NODE) {
    old.data = wanted.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  merge(old, wanted);
}

/** Sets a text if it is another one. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Units of time in the reader's language. */
const UNITS = language === "zh" ? { ms: "毫秒", s: "秒", min: "分", h: "小时" } : { ms: "ms", s: "s", min: "min", h: "h" };

/** A duration as people say it. */
export function span(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1000) return `${Math.round(ms)} ${UNITS.ms}`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} ${UNITS.s}`;
  if (ms < 60_000) return `${Math.round(ms / 1000)} ${UNITS.s}`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} ${UNITS.min} ${Math.floor((ms % 60_000) / 1000)} ${UNITS.s}`;
  return `${(ms / 3_600_000).toFixed(1)} ${UNITS.h}`;
}

let ahead = 0;

/** Corrects this machine's clock by its difference to the server's. */
export const setAhead = (ms) => {
  ahead = ms;
};

/** The time of now by the server's clock. */
export const now = () => Date.now() - ahead;

/** How long ago. */
export function ago(time) {
  const seconds = Math.max(0, (now() - Date.parse(time)) / 1000);
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 5) return t("now");
  if (seconds < 60) return t("seconds-ago", { n: Math.floor(seconds) });
  if (seconds < 3600) return t("minutes-ago", { n: Math.floor(seconds / 60) });
  if (seconds < 86_400) return t("hours-ago", { n: Math.floor(seconds / 3600) });
  return t("days-ago", { n: Math.floor(seconds / 86_400) });
}

/** A time of day, or with its date when that is another. */
export function clock(time) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return "–";
  const isToday = date.toDateString() === new Date().toDateString();
  const day = isToday ? {} : { month: "short", day: "numeric" };
  return date.toLocaleString(language, { ...day, hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

/** A number with its thousands apart. */
export const number = (value) => Number(value ?? 0).toLocaleString(language);

/** An amount of money; small amounts keep their digits. */
export function money(amount, currency) {
  if (!Number.isFinite(amount)) return "–";
  const digits = amount !== 0 && amount < 1 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 2 };
  return `${amount.toLocaleString(language, digits)} ${currency ?? ""}`.trim();
}

/** JSON as people read it; text as it is. Never longer than a screenful of screens. */
export function pretty(value, max = 20_000) {
  let text = value;
  if (typeof value === "string") {
    try {
      const parsed = JSON.parse(value);
      if (typeof parsed === "object" && parsed !== null) text = JSON.stringify(parsed, null, 2);
    } catch {
      // It is text.
    }
  } else {
    text = JSON.stringify(value, null, 2) ?? "";
  }
  return text.length > max ? `${text.slice(0, max)}…` : text;
}

/** Runs `work` before the next picture, once, however often it is asked for. */
export function beforePaint(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}

/** A cookie for a choice of the reader's; the server renders by it. */
export function remember(name, value) {
  document.cookie = `${name}=${value}; path=/; max-age=31536000; samesite=strict`;
}

/** A size as people say it. */
export function bytes(count) {
  if (!Number.isFinite(count)) return "–";
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(1)} KB`;
  return `${(count / 1024 / 1024).toFixed(1)} MB`;
}
