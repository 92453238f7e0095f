// The two choices every page has: language and theme. Both are cookies, so the server renders them. A token in the
// address is taken out of it on every page.

import "./api.js";
import { at, language, remember, t } from "./kit.js";

const root = document.documentElement;
const THEMES = ["auto", "light", "dark"];

at("language").addEventListener("click", () => {
  remember("lang", language === "zh" ? "en" : "zh");
  location.reload();
});

const theme = at("theme");
const name = () => theme.setAttribute("aria-label", t(`theme-${root.dataset.theme}`));
theme.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
  root.dataset.theme = next;
  theme.title = t(`theme-${next}`);
  remember("theme", next);
  name();
});
name();

/** The doll falls over, and gets up again. */
export function tip() {
  const doll = at("doll");
  doll.classList.remove("tipped");
  requestAnimationFrame(() => doll.classList.add("tipped"));
}
