// The numbers of `/api/stats`, drawn.

import { api } from "./api.js";
import { distribution, overTime, shares } from "./charts.js";
import { drawFlow, endWords } from "./flow.js";
import { ago, at, h, number, refill, span, t } from "./kit.js";
import "./shell.js";

const names = JSON.parse(at("charts").dataset.titles);
const title = (kind) => (kind === "other" ? t("other") : (endWords(kind) ?? names[kind] ?? kind));
const explain = (kind) => `/faults/${encodeURIComponent(kind)}`;

let stats;

async function load() {
  const window = document.querySelector("input[name=window]:checked").value;
  history.replaceState(null, "", `/faults?window=${window}`);
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
    figure("figure-faults", number(faults)),
    figure("figure-recovered", number(recovered)),
    figure("figure-given-up", number(notRecovered)),
    figure("figure-retries", tried === 0 ? "–" : `${Math.round((succeeded / tried) * 100)} %`),
    figure("figure-median", span(stats.recovery_ms.p50 ?? NaN)),
  );
  overTime(at("over-time"), stats.buckets, stats.kinds, title);
  distribution(at("recovery"), stats.recovery_ms);
  drawFlow(at("paths"), stats.paths, title, explain);
  kinds();
  shares(at("by-tool"), stats.by_tool, (row) => row.tool, (row) => `/sessions?q=${encodeURIComponent(row.tool)}`);
  shares(at("by-model"), stats.by_model, (row) => row.model || "–");
  shares(at("by-stage"), stats.by_stage, (row) => row.stage);
  shares(at("by-computer"), stats.by_computer, (row) => row.computer);
  shares(at("unrecoverable"), stats.unrecoverable_by_session, (row) => `${row.session_id} · ${row.last_code} · ${ago(row.last_at)}`, (row) => `/sessions/${encodeURIComponent(row.session_id)}`);
}

function figure(name, value) {
  return h("div", {}, h("dt", {}, t(name)), h("dd", { "data-figure": name }, value));
}

function kinds() {
  const head = ["kind", "category", "count", "figure-recovered", "figure-given-up", "occurrences"];
  refill(
    at("kinds"),
    h("thead", {}, h("tr", {}, head.map((name, index) => h("th", { scope: "col", class: index >= 2 && index <= 4 ? "number" : undefined }, t(name))))),
    h(
      "tbody",
      {},
      stats.kinds.map((kind) =>
        h(
          "tr",
          {},
          h("td", {}, h("a", { href: explain(kind.code) }, title(kind.kind)), " ", h("a", { class: "code", href: explain(kind.code) }, kind.code)),
          h("td", { class: "faint" }, kind.category),
          [kind.count, kind.recovered, kind.not_recovered].map((n) => h("td", { class: "number" }, number(n))),
          h("td", {}, h("a", { href: `/sessions?q=${encodeURIComponent(kind.code)}` }, t("nav-sessions"))),
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
