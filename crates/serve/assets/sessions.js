// The sessions, and how to find one again.

import { api } from "./api.js";
import { bulk, pagesOf } from "./bulk.js";
import { ago, at, clock, h, number, refill, t } from "./kit.js";
import { listen } from "./keys.js";
import "./shell.js";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const TRACE = /^[0-9a-f]{32}$/i;
const CODE = /^ERR_[A-Z0-9_]+$/i;

let next;
let shown = 0;
let asked = 0;
/** A time range from the address; sessions that were active in it are meant. */
const range = { since: undefined, until: undefined };
/** Faults that hit the sessions meant, from the address: `model:gpt-5`. */
let hit;
/** What became of these faults: `recovered`, `not_recovered`; undefined for all. */
let outcome;

/** What is searched for, as the server takes it. */
function query() {
  const wanted = { ...meaning(at("q").value.trim()) };
  if (at("state").value !== "") wanted.state = at("state").value;
  if (range.since !== undefined) wanted.since = range.since;
  if (hit === undefined) return wanted;
  // The range is then one of the faults' times.
  if (range.until !== undefined) wanted.until = range.until;
  return { ...wanted, hit, ...(outcome === undefined ? {} : { outcome }) };
}

/** The server knows when a session was active last; one that began after the range was not active in it. */
const fits = ({ opened_at: opened }) => hit !== undefined || range.until === undefined || Date.parse(opened) < Date.parse(range.until);

async function readPage(after) {
  const found = await pagesOf(query())(after);
  return { ...found, sessions: found.sessions.filter(fits) };
}

/** What somebody means by what they typed: one session, a trace, a code, or a tool. */
function meaning(text) {
  if (TRACE.test(text)) return { trace: text.toLowerCase() };
  if (CODE.test(text)) return { code: text.toUpperCase() };
  return text === "" ? {} : { tool: text };
}

async function search() {
  const text = at("q").value.trim();
  const state = at("state").value;
  const address = new URLSearchParams();
  if (text !== "") address.set("q", text);
  if (state !== "") address.set("state", state);
  if (hit !== undefined) address.set("hit", hit);
  if (outcome !== undefined) address.set("outcome", outcome);
  for (const name of ["since", "until"]) if (range[name] !== undefined) address.set(name, range[name]);
  drawRange();
  drawHit();
  history.replaceState(null, "", `/sessions${address.size > 0 ? `?${address}` : ""}`);
  if (UUID.test(text)) {
    location.href = `/sessions/${encodeURIComponent(text)}`;
    return;
  }
  at("rows").replaceChildren();
  shown = 0;
  next = undefined;
  await page();
}

async function page() {
  const turn = ++asked;
  const found = await part().catch((problem) => ({ sessions: [], next: null, problem }));
  if (turn !== asked) return;
  const isSearch = at("q").value.trim() !== "" || at("state").value !== "" || range.since !== undefined || hit !== undefined;
  at("rows").append(...found.sessions.map(row));
  shown += found.sessions.length;
  next = found.next ?? undefined;
  at("sessions").hidden = shown === 0;
  at("empty").hidden = shown > 0 || isSearch || found.problem !== undefined;
  at("nothing").hidden = shown > 0 || !isSearch || found.problem !== undefined;
  at("more").hidden = next === undefined;
  at("bulk").hidden = shown === 0;
  const words = next === undefined ? "sessions-found" : "sessions-more";
  at("found").textContent = found.problem?.message ?? (shown === 0 ? "" : t(words, { n: number(shown) }));
}

/** The next 50. */
async function part() {
  const wanted = new URLSearchParams({ limit: "50", ...query() });
  if (next !== undefined) wanted.set("after", next);
  const found = await api(`/v1/sessions?${wanted}`);
  return { ...found, sessions: found.sessions.filter(fits) };
}

function drawRange() {
  at("range").hidden = range.since === undefined;
  if (range.since === undefined) return;
  const [from, to] = [clock(range.since), clock(range.until)];
  const clear = h("button", { type: "button", class: "plain small", on: { click: clearRange } }, t("range-clear"));
  refill(at("range"), h("span", {}, range.until === undefined ? t("range-since", { from }) : t("range", { from, to })), clear);
}

function clearRange() {
  range.since = range.until = undefined;
  search();
}

function drawHit() {
  at("hit").hidden = hit === undefined;
  if (hit === undefined) return;
  const clear = h("button", { type: "button", class: "plain small", on: { click: clearHit } }, t("hit-clear"));
  refill(at("hit"), h("span", { dir: "auto" }, t("hit", { name: [hit === "any" ? t("hit-any") : hit.replace(":", " "), outcome === undefined ? undefined : t(`outcome-${outcome}`)].filter(Boolean).join(" · ") })), clear);
}

function clearHit() {
  hit = outcome = undefined;
  search();
}

function row(item) {
  const address = `/sessions/${encodeURIComponent(item.session_id)}`;
  const code = item.last_code === null ? "" : h("a", { class: "code", href: `/faults/${encodeURIComponent(item.last_code)}` }, item.last_code);
  const met = item.faults > 0 ? h("span", {}, t("faults-and-rises", { n: number(item.faults), of: number(item.recovered) })) : "";
  return h(
    "tr",
    { "data-state": item.state },
    h("td", { class: "state" }, h("i", { class: "dot" }), t(`state-${item.state}`)),
    h("td", { class: "name" }, h("a", { href: address, dir: "auto" }, item.title ?? t("untitled")), h("code", {}, item.session_id)),
    h("td", { class: "number" }, number(item.turns)),
    h("td", { class: "number" }, number(item.head)),
    h("td", { class: "fault" }, met, code),
    h("td", { class: "when", title: clock(item.updated_at) }, ago(item.updated_at)),
  );
}

const address = new URLSearchParams(location.search);
at("q").value = address.get("q") ?? "";
at("state").value = address.get("state") ?? "";
hit = address.get("hit") ?? undefined;
if (hit !== undefined) outcome = address.get("outcome") ?? undefined;
for (const name of ["since", "until"]) {
  const time = Date.parse(address.get(name) ?? "");
  if (!Number.isNaN(time)) range[name] = new Date(time).toISOString();
}
at("bulk").addEventListener("submit", (event) => {
  event.preventDefault();
  bulk(at("action").value, readPage, search);
});
listen({ "/": () => at("q").focus() });
at("search").addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});
at("state").addEventListener("change", search);
at("more").addEventListener("click", page);
search();
