// The numbers of `/api/stats`, drawn.

import { api } from "./api.js";
import { distribution, overTime, shares } from "./charts.js";
import { drawFlow, endWords } from "./flow.js";
import { ago, at, clock, h, now, number, refill, span, t } from "./kit.js";
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
/** The sessions that faults hit in a range of time. */
const sessionsIn = ({ from, to }, hit = "any") => `/sessions?${new URLSearchParams({ hit, since: iso(from), until: iso(to) })}`;

/** Windows by length in milliseconds, the shortest first. */
const WINDOWS = Object.entries({ "5m": 300_000, "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000 });

/** Is the beginning of a range still in the window of this length? */
const isIn = (range, length) => range === undefined || range.from >= now() - length;

/** The shortest window from this one on that still has both ranges; undefined if none has. */
function windowWithRanges(wanted) {
  const first = WINDOWS.findIndex(([name]) => name === wanted);
  return WINDOWS.slice(first).find(([, length]) => isIn(chosen, length) && isIn(other, length))?.[0];
}

/** A range as its bars have it: those of a longer window are wider. */
function inBars({ from, to }) {
  const length = stats.bucket_seconds * 1000;
  return { from: Math.floor(from / length) * length, to: Math.ceil(to / length) * length };
}

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
  const range = inBars(chosen);
  const sum = (list) => list.reduce((all, bar) => all + bar.sum, 0);
  const before = from - (to - from + 1);
  const inside = number(sum(bars.slice(from, to + 1)));
  const earlier = before < 0 ? t("range-none") : number(sum(bars.slice(before, from)));
  const clear = h("button", { type: "button", class: "plain small", on: { click: () => draw((chosen = undefined)) } }, t("range-clear"));
  refill(
    box,
    h("b", {}, t("range", { from: clock(range.from), to: clock(range.to) })),
    " ",
    t("range-faults", { n: inside, of: earlier }),
    " ",
    h("a", { href: sessionsIn(range) }, t("range-sessions")),
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
  const range = chosen === undefined ? undefined : inBars(chosen);
  const before = other !== undefined ? inBars(other) : isNone ? undefined : { from: 2 * range.from - range.to, to: range.from };
  const isKnown = before !== undefined && before.from >= Date.parse(bars[0]?.at ?? "");
  table.hidden = isNone || !isKnown;
  if (table.hidden) return;
  const [earlier, later] = [countsIn(before), countsIn(range)];
  const kinds = [...new Set([...earlier.keys(), ...later.keys()])].sort((one, two) => (later.get(two) ?? 0) - (later.get(one) ?? 0) || (earlier.get(two) ?? 0) - (earlier.get(one) ?? 0));
  table.hidden = kinds.length === 0;
  const head = (range) => h("th", { scope: "col", class: "number" }, h("a", { href: sessionsIn(range) }, t("range", { from: clock(range.from), to: clock(range.to) })));
  const row = (kind) => {
    const cells = [[earlier, before], [later, range]].map(([counts, range]) => h("td", { class: "number" }, countedKind(counts.get(kind) ?? 0, kind, range)));
    const change = (later.get(kind) ?? 0) - (earlier.get(kind) ?? 0);
    const sign = change > 0 ? "+" : change < 0 ? "−" : "±";
    return h("tr", {}, h("th", { scope: "row" }, title(kind)), cells, h("td", { class: "number" }, `${sign}${number(Math.abs(change))}`));
  };
  refill(
    table,
    h("caption", { class: "unseen" }, t("compare")),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("kind")), head(before), head(range), h("th", { scope: "col", class: "number" }, t("compare-change")))),
    h("tbody", {}, kinds.map(row)),
  );
}

/** Faults of a kind in a range, which lead to the sessions that they hit then. */
function countedKind(n, kind, range) {
  const code = stats.kinds.find((row) => row.kind === kind)?.code;
  return code === undefined ? number(n) : counted(n, sessionsIn(range, `code:${code}`));
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

/** The chart in numbers; a time and its numbers lead to the sessions hit then. */
function values({ bars, names }) {
  const used = names.map((name, depth) => ({ name, depth })).filter(({ depth }) => bars.some((bar) => bar.counts[depth] > 0));
  const rangeOfBar = ({ at: time }) => ({ from: Date.parse(time), to: Date.parse(time) + stats.bucket_seconds * 1000 });
  const row = (bar) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: sessionsIn(rangeOfBar(bar)) }, clock(bar.at))), used.map(({ name, depth }) => h("td", { class: "number" }, countedKind(bar.counts[depth], name, rangeOfBar(bar)))));
  refill(
    at("values"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("time")), used.map(({ name }) => h("th", { scope: "col", class: "number" }, title(name))))),
    h("tbody", {}, bars.filter((bar) => bar.sum > 0).map(row)),
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

const windowNow = () => document.querySelector("input[name=window]:checked");

/** Another window keeps the ranges that are still in it. */
function changeWindow() {
  const [, length] = WINDOWS.find(([name]) => name === windowNow().value);
  if (!isIn(chosen, length)) chosen = undefined;
  if (!isIn(other, length)) other = undefined;
  at("range-note")?.remove();
  return load();
}

/** A link with a range opens the shortest window that still has it; when none has, the page says so. */
function followLink() {
  const wanted = new URLSearchParams(location.search).get("window");
  const input = (name) => document.querySelector(`input[name=window][value="${name}"]`);
  const linked = WINDOWS.find(([name]) => name === wanted)?.[0] ?? windowNow().value;
  const gone = [chosen, other].filter((range) => !isIn(range, WINDOWS.at(-1)[1]));
  if (gone.includes(chosen)) chosen = undefined;
  if (gone.includes(other)) other = undefined;
  const fit = windowWithRanges(linked) ?? WINDOWS.at(-1)[0];
  input(fit).checked = true;
  const note = gone.length > 0 ? t("range-gone", { from: clock(gone[0].from), to: clock(gone[0].to) }) : fit === linked ? undefined : t("range-widened");
  if (note !== undefined) at("windows").after(h("p", { id: "range-note", class: "chosen-range", role: "status" }, note));
  return load();
}

async function load() {
  const window = windowNow().value;
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
  const range = chosen === undefined ? undefined : inBars(chosen);
  const inRange = chart.bars.map(({ at }, index) => [Date.parse(at), index]).filter(([time]) => range !== undefined && time >= range.from && time < range.to);
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

at("windows").addEventListener("change", changeWindow);
let redraw;
addEventListener("resize", () => {
  clearTimeout(redraw);
  redraw = setTimeout(draw, 150);
});
followLink();
