// Keys for everything. Single keys count only where nothing is being typed; `?` lists them.

import { at } from "./kit.js";

/** Is the reader typing? Then a key is a letter. */
export function isTyping(target) {
  return target instanceof Element && target.closest("input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select, [contenteditable]") !== null;
}

/** Listens to single keys: `keys` maps a key to what it does. */
export function listen(keys) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]") !== null) return;
    const act = keys[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  });
}

/** Shows the list of keys. */
export function showKeys() {
  at("keys")?.showModal();
}

/** Moves the focus to the entry before or after the one in focus. */
export function walk(entries, step) {
  const list = [...entries].filter((entry) => entry.offsetParent !== null);
  if (list.length === 0) return undefined;
  const from = list.findIndex((entry) => entry.contains(document.activeElement));
  const to = from === -1 ? (step < 0 ? list.length - 1 : firstInSight(list)) : Math.max(0, Math.min(list.length - 1, from + step));
  list[to].tabIndex = -1;
  list[to].focus({ preventScroll: true });
  list[to].scrollIntoView({ block: "nearest" });
  return list[to];
}

function firstInSight(list) {
  const index = list.findIndex((entry) => entry.getBoundingClientRect().bottom > 0);
  return Math.max(0, index);
}
