// The numbers of `/api/stats`, drawn.

import { api } from "./api.js";
import { distribution, overTime, shares } from "./charts.js";
import { drawFlow, endWords } from "./flow.js";
import { ago, at, clock, h, number, refill, span, t } from "./kit.js";
import "./shell.js";

const names = JSON.parse(at("charts").dataset.titles);
const categories = JSON.parse(at("charts").dataset.categories);
const title = (kind) => (kind === "other" ? t("other") : (endWords(kind) ?? names[kind] ?? kind));
const explain = (kind) => `/faults/${encodeURIComponent(kind)}`;

let stats;
/** The chosen time range, as two times in milliseconds. */
let chosen = rangeOf(new URLSearchParams(location.search), "since", "until");
/** The range it is compared with; undefined for the one of the same length before. */
let other = rangeOf(new URLSearchParams(location.search), "other_since", "other_until");

function rangeOf(query, ...ends) {
  const [from, to] = ends.map((name) => Date.parse(query.get(name) ?? ""));
  return from < to ? { from, to } : undefined;
}

const iso = (ms) => new Date(ms).toISOString();
/** The sessions that were active in a range of time. */
const sessionsIn = (from, to) => `/sessions?since=${iso(from)}&until=${iso(to)}`;

function address(window) {
  const range = chosen === undefined ? "" : `&since=${iso(chosen.from)}&until=${iso(chosen.to)}`;
  const compared = other === undefined ? "" : `&other_since=${iso(other.from)}&other_until=${iso(other.to)}`;
  history.replaceState(null, "", `/faults?window=${window}${range}${compared}`);
}

/** A range was chosen on the chart: how much was in it, how much before, and where the sessions are. */
function choose(from, to, bars) {
  const length = stats.bucket_seconds * 1000;
  chosen = from === undefined ? undefined : { from: Date.parse(bars[from].at), to: Date.parse(bars[to].at) + length };
  address(stats.window);
  drawRange(bars, from, to);
}

function drawRange(bars, from, to) {
  const box = at("chosen");
  box.hidden = from === undefined;
  drawComparison(bars, from === undefined);
  if (from === undefined) return;
  const sum = (list) => list.reduce((all, bar) => all + bar.sum, 0);
  const before = from - (to - from + 1);
  const inside = number(sum(bars.slice(from, to + 1)));
  const earlier = before < 0 ? t("range-none") : number(sum(bars.slice(before, from)));
  const clear = h("button", { type: "button", class: "plain small", on: { click: () => draw((chosen = undefined)) } }, t("range-clear"));
  refill(
    box,
    h("b", {}, t("range", { from: clock(chosen.from), to: clock(chosen.to) })),
    " ",
    t("range-faults", { n: inside, of: earlier }),
    " ",
    h("a", { href: sessionsIn(chosen.from, chosen.to) }, t("range-sessions")),
    " ",
    keepButton(),
    " ",
    clear,
  );
}

/** Keeps the chosen range to compare the next one with it, or lets it go. */
function keepButton() {
  const keep = () => {
    other = other === undefined ? chosen : undefined;
    address(stats.window);
    draw();
  };
  return h("button", { type: "button", class: "plain small", id: "compare", on: { click: keep } }, t(other === undefined ? "compare-keep" : "compare-clear"));
}

/** The kinds of two ranges side by side: the chosen one, and the kept one or the one of the same length before. */
function drawComparison(bars, isNone) {
  const table = at("comparison");
  const length = chosen === undefined ? 0 : chosen.to - chosen.from;
  const before = other ?? (isNone ? undefined : { from: chosen.from - length, to: chosen.from });
  const isKnown = before !== undefined && before.from >= Date.parse(bars[0]?.at ?? "");
  table.hidden = isNone || !isKnown;
  if (table.hidden) return;
  const [earlier, now] = [countsIn(before), countsIn(chosen)];
  const kinds = [...new Set([...earlier.keys(), ...now.keys()])].sort((one, two) => (now.get(two) ?? 0) - (now.get(one) ?? 0) || (earlier.get(two) ?? 0) - (earlier.get(one) ?? 0));
  table.hidden = kinds.length === 0;
  const head = (range) => h("th", { scope: "col", class: "number" }, h("a", { href: sessionsIn(range.from, range.to) }, t("range", { from: clock(range.from), to: clock(range.to) })));
  const row = (kind) => {
    const [was, is] = [earlier.get(kind) ?? 0, now.get(kind) ?? 0];
    const change = is - was;
    const sign = change > 0 ? "+" : change < 0 ? "−" : "±";
    return h("tr", {}, h("th", { scope: "row" }, title(kind)), h("td", { class: "number" }, number(was)), h("td", { class: "number" }, number(is)), h("td", { class: "number" }, `${sign}${number(Math.abs(change))}`));
  };
  refill(
    table,
    h("caption", { class: "unseen" }, t("compare")),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("kind")), head(before), head(chosen), h("th", { scope: "col", class: "number" }, t("compare-change")))),
    h("tbody", {}, kinds.map(row)),
  );
}

/** Faults by kind in the bars of a range. */
function countsIn({ from, to }) {
  const counts = new Map();
  for (const { at: time, by_kind: byKind } of stats.buckets) {
    if (Date.parse(time) < from || Date.parse(time) >= to) continue;
    for (const [kind, n] of Object.entries(byKind)) counts.set(kind, (counts.get(kind) ?? 0) + n);
  }
  return counts;
}

/** The chart in numbers; a time leads to its sessions. */
function values({ bars, names }) {
  const used = names.map((name, depth) => ({ name, depth })).filter(({ depth }) => bars.some((bar) => bar.counts[depth] > 0));
  const link = ({ at: time }) => h("a", { href: sessionsIn(Date.parse(time), Date.parse(time) + stats.bucket_seconds * 1000) }, clock(time));
  refill(
    at("values"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("time")), used.map(({ name }) => h("th", { scope: "col", class: "number" }, title(name))))),
    h("tbody", {}, bars.filter((bar) => bar.sum > 0).map((bar) => h("tr", {}, h("th", { scope: "row" }, link(bar)), used.map(({ depth }) => h("td", { class: "number" }, number(bar.counts[depth])))))),
  );
}

/** The sessions that the faults of one bar hit in the window. */
function hitBy(column, name, outcome) {
  return sessionsHit(`${column}:${name}`, outcome);
}

/** The sessions that faults hit in the window; `any` means all faults. */
function sessionsHit(hit, outcome) {
  return `/sessions?${new URLSearchParams({ hit, ...(outcome === undefined ? {} : { outcome }), since: stats.since })}`;
}

/** A number that leads to the sessions behind it, unless there are none. */
const counted = (n, href) => (n > 0 ? h("a", { href }, number(n)) : number(n));

async function load() {
  const window = document.querySelector("input[name=window]:checked").value;
  if (stats !== undefined && stats.window !== window) chosen = other = undefined;
  address(window);
  try {
    stats = await api(`/api/stats?window=${window}`);
    draw();
  } catch (problem) {
    at("charts").hidden = true;
    at("empty").hidden = false;
    refill(at("empty"), h("h2", {}, t("problem")), h("p", {}, problem.message));
  }
}

function draw() {
  if (stats === undefined) return;
  const faults = stats.kinds.reduce((sum, kind) => sum + kind.count, 0);
  at("empty").hidden = faults > 0;
  at("charts").hidden = faults === 0;
  if (faults === 0) return;
  const recovered = stats.kinds.reduce((sum, kind) => sum + kind.recovered, 0);
  const notRecovered = stats.kinds.reduce((sum, kind) => sum + kind.not_recovered, 0);
  const { succeeded, failed = 0 } = stats.retries;
  const tried = succeeded + failed;
  refill(
    at("figures"),
    figure("figure-faults", counted(faults, sessionsHit("any"))),
    figure("figure-recovered", counted(recovered, sessionsHit("any", "recovered"))),
    figure("figure-given-up", counted(notRecovered, sessionsHit("any", "not_recovered"))),
    figure("figure-retries", tried === 0 ? "–" : `${Math.round((succeeded / tried) * 100)} %`),
    figure("figure-median", span(stats.recovery_ms.p50 ?? NaN)),
    figure("figure-unanswered", t("n-of", { n: number(stats.steps_unanswered ?? 0), of: number(stats.steps) })),
  );
  const chart = overTime(at("over-time"), stats.buckets, stats.kinds, title, choose);
  values(chart);
  const inRange = chart.bars.map(({ at }, index) => [Date.parse(at), index]).filter(([time]) => chosen !== undefined && time >= chosen.from && time < chosen.to);
  const [first, last] = [inRange[0]?.[1], inRange.at(-1)?.[1]];
  chart.mark(first, last);
  drawRange(chart.bars, first, last);
  distribution(at("recovery"), stats.recovery_ms);
  drawFlow(at("paths"), stats.paths, title, explain);
  kinds();
  shares(at("by-tool"), stats.by_tool, (row) => row.tool, (row) => hitBy("tool", row.tool));
  shares(at("by-model"), stats.by_model, (row) => row.model, (row) => hitBy("model", row.model));
  shares(at("by-stage"), stats.by_stage, (row) => row.stage, (row) => hitBy("stage", row.stage));
  shares(at("by-computer"), stats.by_computer, (row) => row.computer, (row) => hitBy("computer", row.computer));
  shares(at("by-endpoint"), stats.by_endpoint, (row) => row.endpoint, (row) => hitBy("endpoint", row.endpoint));
  shares(at("by-node"), stats.by_node, (row) => row.node, (row) => hitBy("node", row.node));
  shares(at("by-version"), stats.by_version, (row) => row.version, (row) => hitBy("version", row.version));
  shares(at("by-tenant"), stats.by_tenant, (row) => row.tenant, (row) => hitBy("tenant", row.tenant));
  shares(at("by-user"), stats.by_user, (row) => row.user, (row) => hitBy("user", row.user));
  shares(at("unrecoverable"), stats.unrecoverable_by_session, (row) => `${row.session_id} · ${row.last_code} · ${ago(row.last_at)}`, (row) => `/sessions/${encodeURIComponent(row.session_id)}`);
}

function figure(name, value) {
  return h("div", {}, h("dt", {}, t(name)), h("dd", { "data-figure": name }, value));
}

function kinds() {
  const head = ["kind", "category", "count", "figure-recovered", "figure-given-up", "figure-median", "occurrences"];
  refill(
    at("kinds"),
    h("thead", {}, h("tr", {}, head.map((name, index) => h("th", { scope: "col", class: index >= 2 && index <= 5 ? "number" : undefined }, t(name))))),
    h(
      "tbody",
      {},
      stats.kinds.map((kind) =>
        h(
          "tr",
          {},
          h("td", {}, h("a", { href: explain(kind.code) }, title(kind.kind)), " ", h("a", { class: "code", href: explain(kind.code) }, kind.code)),
          h("td", { class: "faint" }, categories[kind.category] ?? kind.category),
          [[kind.count], [kind.recovered, "recovered"], [kind.not_recovered, "not_recovered"]].map(([n, outcome]) => h("td", { class: "number" }, counted(n, hitBy("code", kind.code, outcome)))),
          h("td", { class: "number" }, span(kind.recovery_p50_ms ?? NaN)),
          h("td", {}, h("a", { href: hitBy("code", kind.code) }, t("sessions-n", { n: number(kind.sessions) }))),
        ),
      ),
    ),
  );
}

const wanted = new URLSearchParams(location.search).get("window");
const choice = [...document.querySelectorAll("input[name=window]")].find((input) => input.value === wanted);
if (choice !== undefined) choice.checked = true;
at("windows").addEventListener("change", load);
let redraw;
addEventListener("resize", () => {
  clearTimeout(redraw);
  redraw = setTimeout(draw, 150);
});
load();
