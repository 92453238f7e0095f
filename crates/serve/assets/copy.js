// Copying: a button that says that it has done so.

import { h, say, t } from "./kit.js";

/** A button that copies what `text()` gives. */
export function copyButton(text, label = t("copy")) {
  const button = h("button", { type: "button", class: "plain small copy", on: { click: async () => done(await copy(text())) } }, label);
  let timer;
  const done = (ok) => {
    say(button, t(ok ? "copied" : "not-copied"));
    clearTimeout(timer);
    timer = setTimeout(() => say(button, label), 2000);
  };
  return button;
}

/** Puts a text on the clipboard; false if the browser does not let us. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return byHand(text);
  }
}

/** Without a secure address browsers have no clipboard for scripts; a selection can still be copied. */
function byHand(text) {
  const box = h("textarea", { class: "unseen", readonly: true, "aria-hidden": "true" });
  const before = document.activeElement;
  box.value = text;
  document.body.append(box);
  box.select();
  const ok = document.execCommand("copy");
  box.remove();
  before?.focus();
  return ok;
}
