// The sessions beside the conversation: the latest first, found by title, one press away.

import { api } from "./api.js";
import { ago, at, beforePaint, h, number, say, t, update } from "./kit.js";

/** Sessions a search by title looks at. */
const SEARCH_MAX = 1000;
const PAGE = 50;
/** The titles that the server gives the sessions of a plan's stages, and the words of the board for them. */
const STAGES = { planning: "plan", aggregation: "aggregate" };

let sessions = [];
let next;
let loading = false;
let current;

const draw = beforePaint(() => {
  const wanted = at("side-search").value.trim().toLowerCase();
  const fits = ({ title, session_id: id }) => wanted === "" || (title ?? "").toLowerCase().includes(wanted) || id.startsWith(wanted);
  const found = nested(sessions.filter(fits));
  update(at("side-list"), found.map(row));
  at("side-more").hidden = next === undefined || wanted !== "";
  const text = loading && sessions.length === 0 ? t("loading") : wanted === "" ? (sessions.length === 0 ? t("side-none") : "") : t("side-found", { n: number(found.length), of: number(sessions.length) });
  say(at("side-status"), text);
});

/** Sessions that a session opened for its stages and calls stand below it: their ids begin with the time of its own. */
function nested(list) {
  const families = Map.groupBy(list, ({ session_id: id }) => id.slice(0, 13));
  for (const family of families.values()) family.sort((a, b) => Date.parse(a.opened_at) - Date.parse(b.opened_at));
  return [...families.values()].flatMap(([first, ...rest]) => [first, ...rest.map((item) => ({ ...item, isPart: true }))]);
}

function titleOf({ title, isPart }) {
  const stage = isPart ? STAGES[title] : undefined;
  return stage === undefined ? (title ?? t("untitled")) : t(stage);
}

function row(item) {
  const isHere = item.session_id === current;
  return h(
    "li",
    { "data-key": item.session_id, "data-state": item.state, class: item.isPart ? "part" : undefined },
    h(
      "a",
      { href: `/?session=${encodeURIComponent(item.session_id)}`, "aria-current": isHere ? "page" : undefined },
      h("span", { class: "side-title", dir: "auto" }, titleOf(item)),
      h("span", { class: "side-when" }, item.state === "idle" ? "" : `${t(`state-${item.state}`)} · `, ago(item.updated_at)),
    ),
  );
}

function part(after) {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (after !== undefined) query.set("after", after);
  return api(`/v1/sessions?${query}`);
}

/** Those of the second list that are not in the first one come after it. */
function joined(first, second) {
  const known = new Set(first.map(({ session_id: id }) => id));
  return [...first, ...second.filter(({ session_id: id }) => !known.has(id))];
}

async function page() {
  const found = await part(next);
  sessions = joined(sessions, found.sessions);
  next = found.next ?? undefined;
}

async function load(work) {
  if (loading) return;
  loading = true;
  draw();
  await work().catch((problem) => say(at("side-status"), problem.message));
  loading = false;
  draw();
}

/** Reads the beginning of the list again. `session` is the one on the page. */
export function refresh(session) {
  current = session;
  return load(async () => {
    const found = await part();
    const isWhole = sessions.length <= found.sessions.length;
    if (isWhole) next = found.next ?? undefined;
    sessions = isWhole ? found.sessions : joined(found.sessions, sessions);
  });
}

/** A title is searched for on this side, in the latest sessions. */
async function search() {
  draw();
  if (at("side-search").value.trim() === "") return;
  await load(async () => {
    while (next !== undefined && sessions.length < SEARCH_MAX) await page();
  });
}

let timer;
at("side-search").addEventListener("input", () => {
  draw();
  clearTimeout(timer);
  timer = setTimeout(search, 200);
});
at("side-more").addEventListener("click", () => load(page));

/** On a narrow screen the list is a drawer. */
export function drawer(open) {
  at("side").classList.toggle("open", open);
  at("side-toggle").setAttribute("aria-expanded", String(open));
  if (open) at("side-search").focus();
  else if (at("side").contains(document.activeElement)) at("side-toggle").focus();
}
at("side-toggle").addEventListener("click", () => drawer(!at("side").classList.contains("open")));
at("side").addEventListener("keydown", (event) => {
  if (event.key === "Escape" && at("side").classList.contains("open")) {
    event.stopPropagation();
    drawer(false);
  }
  const links = [...at("side-list").querySelectorAll("a")];
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined || links.length === 0) return;
  event.preventDefault();
  const from = links.indexOf(document.activeElement);
  if (from + step < 0) at("side-search").focus();
  else links[Math.min(links.length - 1, from + step)].focus();
});
