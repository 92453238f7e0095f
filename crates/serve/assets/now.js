// What fails now, for how many, since when, whether it gets better, and whose move it is. Every number leads to the
// sessions behind it.

import { api } from "./api.js";
import { at, clock, h, money, now, number, refill, say, span, svg, t, update } from "./kit.js";
import "./shell.js";
import { trendOf } from "./trend.js";

const PAUSE_S = 5;
/** Kinds for which the people behind the sessions are counted. */
const COUNTED = 12;
const titles = JSON.parse(at("now").dataset.titles);
const remedies = JSON.parse(at("now").dataset.remedies);
/** Owners by kind, with the fault count they were read at. */
const people = new Map();

const sessionsOf = (query) => `/sessions?${new URLSearchParams(query)}`;

async function load() {
  const window = document.querySelector("input[name=window]:checked").value;
  try {
    const stats = await api(`/api/stats?window=${window}`);
    const states = await Promise.all(["running", "waiting_for_decision", "failed"].map((state) => api(`/v1/sessions?limit=100&state=${state}`)));
    await countPeople(stats);
    draw(stats, states);
    drawNodes(await api("/api/nodes"));
    at("trouble").hidden = true;
    at("now").hidden = false;
  } catch (problem) {
    at("trouble").hidden = false;
    say(at("verdict"), problem.message);
    refill(at("trouble"), h("h2", {}, t("problem")), h("p", {}, problem.message));
  }
}

/** Users and tenants of the sessions that had a kind; read again only when its count has changed. */
async function countPeople(stats) {
  for (const { kind, code, count } of stats.kinds.slice(0, COUNTED)) {
    const known = people.get(kind);
    if (known?.count === count && known.since === stats.window) continue;
    const found = await api(`/v1/sessions?${new URLSearchParams({ code, since: stats.since, limit: "100" })}`);
    const owners = found.sessions.map(({ owner }) => owner ?? "").filter(Boolean);
    people.set(kind, { count, since: stats.window, isMore: found.next !== null, users: new Set(owners).size, tenants: new Set(owners.map((owner) => owner.split("/")[0])).size });
  }
}

function draw(stats, [running, waiting, failed]) {
  const stopping = stats.kinds.filter((kind) => kind.not_recovered > 0);
  const held = (stats.gates ?? []).filter(({ state }) => state === "held");
  const sum = (list) => list.reduce((all, { sessions }) => all + sessions, 0);
  const words = [
    stopping.length > 0 ? t("verdict-failing", { n: number(stopping.length), of: number(sum(stopping)) }) : stats.faults > 0 ? t("verdict-recovering") : t("verdict-calm"),
    held.length > 0 ? t("verdict-held", { n: number(held.length) }) : "",
  ];
  say(at("verdict"), words.filter(Boolean).join(" "));
  at("verdict").dataset.state = stopping.length > 0 || held.length > 0 ? "bad" : "good";
  say(at("updated"), t("updated", { time: clock(stats.until), n: PAUSE_S }));
  update(
    at("figures"),
    figure("running-now", countOf(running), sessionsOf({ state: "running" })),
    figure("waiting-now", countOf(waiting), sessionsOf({ state: "waiting_for_decision" })),
    figure("failed-now", countOf(failed), sessionsOf({ state: "failed" })),
    figure("doubts-now", number(stats.doubts_open), "#doubts-part"),
    figure("figure-faults", number(stats.faults), `/faults?window=${stats.window}`),
    figure("figure-median", span(stats.recovery_ms.p50 ?? NaN), `/faults?window=${stats.window}#recovery`),
  );
  const order = (a, b) => b.not_recovered - a.not_recovered || b.count - a.count;
  at("calm").hidden = stats.kinds.length > 0;
  update(at("failing"), [...stats.kinds].sort(order).map((kind) => failing(kind, stats)));
  at("doubts-part").hidden = stats.doubts_open === 0;
  update(at("doubts"), stats.doubts.map(doubt));
  drawCosts(stats.usage ?? {});
  at("no-gates").hidden = (stats.gates ?? []).length > 0;
  update(at("gates"), (stats.gates ?? []).map(gate));
}

/** What the window cost, by model and by tenant; without prices, the tokens by model. */
function drawCosts({ currency, cost, by_model: models = {}, cost_by_tenant: tenants = {} }) {
  const rows = Object.entries(models).sort(([, a], [, b]) => b.cost - a.cost || b.output_tokens - a.output_tokens);
  at("costs-part").hidden = rows.length === 0;
  const share = (rate) => (rate === null || rate === undefined ? "–" : `${number(Math.round(rate * 100))} %`);
  const head = (...names) => h("tr", {}, names.map((name) => h("th", { scope: "col" }, t(name))));
  const hasCost = currency !== undefined;
  const paid = (amount) => (hasCost ? h("td", { class: "amount" }, money(amount, currency)) : undefined);
  const count = (n, row) => (row.estimated_tokens > 0 ? h("td", { class: "amount", title: t("estimated-about") }, `≈ ${number(n)}`) : h("td", { class: "amount" }, number(n)));
  const perModel = ([name, row]) => h("tr", { "data-key": name, "data-model": name }, h("th", { scope: "row" }, name), [row.input_tokens, row.output_tokens].map((n) => count(n, row)), h("td", { class: "amount" }, share(row.cache_hit_rate)), paid(row.cost));
  update(at("costs-by-model"), head("model", "tokens-read", "tokens-written", "cached-share", ...(hasCost ? ["cost"] : [])), rows.map(perModel));
  const paying = Object.entries(tenants).sort(([, a], [, b]) => b - a);
  at("costs-by-tenant").hidden = !hasCost || paying.length === 0;
  update(at("costs-by-tenant"), head("tenant", "cost"), paying.map(([name, amount]) => h("tr", { "data-key": name, "data-tenant": name }, h("th", { scope: "row" }, name), paid(amount))));
  say(at("costs-total"), hasCost ? t("costs-total", { n: money(cost, currency) }) : "");
}

const countOf = ({ sessions, next }) => (next === null ? number(sessions.length) : `${number(sessions.length)}+`);

function figure(name, value, href) {
  return h("div", {}, h("dt", {}, t(name)), h("dd", { "data-figure": name }, h("a", { href }, value)));
}

function failing(kind, stats) {
  const trend = trendOf(stats.buckets, kind.kind);
  const href = sessionsOf({ q: kind.code, since: stats.since });
  const hitWith = (outcome) => sessionsOf({ hit: `code:${kind.code}`, outcome, since: stats.since });
  const who = people.get(kind.kind);
  const atLeast = (n) => (who.isMore ? t("at-least", { n: number(n) }) : number(n));
  return h(
    "li",
    { "data-key": kind.kind, "data-kind": kind.kind, "data-stops": kind.not_recovered > 0 ? "yes" : undefined },
    h("div", { class: "failing-name" }, h("a", { href: `/faults/${encodeURIComponent(kind.code)}` }, titles[kind.kind] ?? kind.kind), " ", h("span", { class: "code" }, kind.code)),
    h("a", { class: "spark", href, "aria-label": t("trend-about", { n: number(trend.late), of: number(trend.early) }) }, spark(trend.counts)),
    h(
      "p",
      { class: "failing-facts" },
      h("a", { href, "data-sessions": kind.sessions }, t("sessions-n", { n: number(kind.sessions) })),
      who === undefined ? undefined : [h("a", { href }, t("users-n", { n: atLeast(who.users) })), h("a", { href }, t("tenants-n", { n: atLeast(who.tenants) }))],
      h("span", {}, t("since-time", { time: clock(kind.first_at) })),
      kind.not_recovered > 0 ? h("a", { href: hitWith("not_recovered") }, t("not-recovered-n", { n: number(kind.not_recovered) })) : undefined,
      kind.recovered > 0 ? h("a", { href: hitWith("recovered") }, t("recovered-n", { n: number(kind.recovered) })) : undefined,
    ),
    h("p", { class: "failing-move" }, h("b", { "data-trend": trend.name, title: t("trend-about", { n: number(trend.late), of: number(trend.early) }) }, t(trend.name)), h("span", {}, t("move", { name: remedies[kind.kind] ?? "–" }))),
  );
}

/** A call in doubt, with the way to the conversation in which it is settled. */
function doubt({ session_id: id, tool, since, call_id: call }) {
  const age = span(Math.max(0, now() - Date.parse(since)));
  return h("li", { "data-key": call, "data-call": call }, h("a", { class: "tool", href: `/?${new URLSearchParams({ session: id })}` }, tool), h("span", {}, t("since-time", { time: clock(since) })), h("span", { class: "faint" }, age), h("span", { class: "faint" }, call));
}

/** Faults over the window as small bars. */
function spark(counts) {
  const max = Math.max(1, ...counts);
  const step = 120 / counts.length;
  return svg("svg", { viewBox: "0 0 120 28", preserveAspectRatio: "none", "aria-hidden": "true" }, counts.map((n, index) => svg("rect", { x: (index * step).toFixed(2), y: (28 - (n / max) * 26).toFixed(2), width: Math.max(0.8, step * 0.75).toFixed(2), height: n === 0 ? 0 : ((n / max) * 26).toFixed(2) })), svg("line", { x1: 0, x2: 120, y1: 27.5, y2: 27.5 }));
}

function gate(gate) {
  const isHeld = gate.state === "held";
  const left = Date.parse(gate.until ?? "") - now();
  return h(
    "li",
    { "data-key": `${gate.endpoint} ${gate.model}`, "data-state": gate.state },
    h("p", { class: "gate-name" }, h("i", { class: "dot", "aria-hidden": "true" }), h("b", {}, gate.model), h("span", { class: "state" }, t(isHeld ? "gate-held" : "gate-open")), h("span", { class: "faint" }, gate.endpoint)),
    isHeld ? h("p", {}, t({ rate_limit: "wait-rate", outage: "wait-outage" }[gate.reason] ?? "wait-capacity"), gate.since === undefined ? "" : ` ${t("wait-since")} ${clock(gate.since)} (${span(Math.max(0, now() - Date.parse(gate.since)))})`, left > 0 ? ` · ${t("gate-until", { time: clock(gate.until) })} (${t("wait-left", { time: span(left) })})` : "") : undefined,
    // A session whose request waits or is under way is running.
    h("p", { class: "faint" }, h("a", { href: sessionsOf({ state: "running" }) }, t("gate-line", { n: number(gate.waiting), of: number(gate.in_flight), to: number(gate.limit) }))),
    gate.last_error === undefined ? undefined : h("p", { class: "faint" }, `${t("gate-error")}: `, h("a", { class: "code", href: sessionsOf({ q: gate.last_error }) }, gate.last_error), gate.last_error_at === undefined ? "" : ` · ${clock(gate.last_error_at)}`),
  );
}

/** The servers that share the journal; a server alone is not listed. */
function drawNodes({ nodes }) {
  at("servers").hidden = nodes.length < 2;
  update(at("nodes"), nodes.map(node));
}

function node(node) {
  const load = `${number(node.cpu_permille / 10)} %`;
  return h(
    "li",
    { "data-key": node.holder, "data-node": node.state },
    h("p", { class: "gate-name" }, h("i", { class: "dot", "aria-hidden": "true" }), h("b", {}, node.address), h("span", { class: "state" }, t(`node-${node.state}`)), h("span", { class: "faint" }, node.holder)),
    node.state === "gone" ? h("p", {}, t("node-silent", { time: span(node.silent_ms) })) : h("p", { class: "faint" }, t("node-line", { n: number(node.sessions), of: number(node.session_limit), to: number(node.connections), name: load })),
    h("p", { class: "faint" }, t("node-since", { name: node.version, time: clock(node.started_at) })),
  );
}

const wanted = new URLSearchParams(location.search).get("window");
const choice = [...document.querySelectorAll("input[name=window]")].find((input) => input.value === wanted);
if (choice !== undefined) choice.checked = true;
at("windows").addEventListener("change", (event) => {
  history.replaceState(null, "", `/now?window=${event.target.value}`);
  load();
});

for (;;) {
  if (!document.hidden) await load();
  await new Promise((resolve) => setTimeout(resolve, PAUSE_S * 1000));
}
