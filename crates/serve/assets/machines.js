// Rooms, and who is in them now, as the hub of this server knows them.

import { api } from "./api.js";
import { at, clock, h, number, refill, span, t, update } from "./kit.js";
import "./shell.js";

/** Between two looks, in milliseconds. */
const PAUSE = 2000;

/** Computers whose tools the reader has opened: they stay open when the page is drawn anew. */
const opened = new Set();

async function load() {
  let hub;
  let servers;
  try {
    ({ smcp: hub, mcp: servers } = await api("/api/stats?window=5m"));
  } catch (problem) {
    at("trouble").hidden = false;
    refill(at("trouble"), h("h2", {}, t("problem")), h("p", {}, problem.message));
    return;
  }
  at("trouble").hidden = true;
  at("no-hub").hidden = hub !== undefined;
  if (hub !== undefined) draw(hub);
  drawServers(servers ?? []);
  drawWorkers(await api("/v1/tools").catch(() => ({ tools: [], workers: [] })));
}

/** Draws the MCP servers whose tools the sessions use. */
function drawServers(servers) {
  at("mcp").hidden = servers.length === 0;
  update(at("mcp-servers"), servers.map(serverCard));
}

function serverCard({ name, transport, state, since, tools, retry_in_ms: retry, last_error: error }) {
  const isDown = state === "down";
  const health = state === "connected" ? "well" : isDown ? "ill" : "unknown";
  const words = isDown && retry === null ? "mcp-failed" : `mcp-${state}`;
  return h(
    "li",
    { class: "room", "data-key": name, "data-server": name, "data-state": state },
    h("div", { class: "line", "data-health": health }, h("i", { class: "dot", "aria-hidden": "true" }), h("b", {}, name), h("span", { class: "version" }, transport), h("span", { class: "tally" }, tools === null ? undefined : t("tools-of", { n: number(tools) }))),
    h("p", {}, t(words), " · ", t("since-time", { time: clock(since) })),
    isDown && retry !== null ? h("p", { class: "faint" }, t("mcp-retry", { time: span(retry) })) : undefined,
    error === null ? undefined : h("p", { class: "faint" }, `${t("gate-error")}: `, h("a", { class: "code", href: `/faults/${encodeURIComponent(error)}` }, error)),
  );
}

/** Draws the workers and what each of them offers. */
function drawWorkers({ tools, workers }) {
  const names = [...new Set([...tools.map(({ worker }) => worker), ...workers.map(({ worker }) => worker)])].sort();
  const of = (list, name) => list.filter(({ worker }) => worker === name);
  update(at("workers"), names.map((name) => workerCard(name, of(tools, name), of(workers, name))));
}

function workerCard(name, tools, processes) {
  const connected = processes.filter((process) => process.is_connected);
  const sum = (key) => connected.reduce((all, process) => all + process[key], 0);
  const all = tools.length > 0 ? tools.map((tool) => tool.name) : [...new Set(processes.flatMap((process) => process.tools))];
  return h(
    "section",
    { class: "room", "data-key": name, "data-worker": name },
    h("h2", {}, t("worker", { name })),
    h("p", { class: "agent" }, connected.length === 0 ? t("worker-away") : t("worker-now", { n: number(connected.length), of: number(sum("held")), to: number(sum("capacity")) })),
    offered(`worker/${name}`, all),
  );
}

/** Draws what is there. */
function draw(hub) {
  at("no-rooms").hidden = hub.present.length > 0;
  at("figures").hidden = false;
  const failed = Object.values(hub.codes).reduce((sum, n) => sum + n, 0);
  update(
    at("figures"),
    figure("rooms", hub.rooms),
    figure("computers", hub.computers),
    figure("connections", hub.connections),
    figure("under-way", hub.calls_under_way),
    figure("errors", failed),
  );
  update(at("rooms"), hub.present.map((room) => card(room, hub)));
}

const figure = (name, n) => h("div", {}, h("dt", {}, t(name)), h("dd", { "data-figure": name }, number(n)));

function card({ room, agent, computers }, hub) {
  return h(
    "section",
    { class: "room", "data-key": room, "data-room": room },
    h("h2", {}, t("room", { name: room })),
    h("p", { class: "agent" }, agent === null ? t("no-agent") : t("agent-is", { name: agent.name }), version(agent)),
    computers.length === 0
      ? h("p", { class: "faint" }, t("no-computers"))
      : h("ul", {}, computers.map((computer) => machine(room, computer, hub))),
  );
}

const version = (member) => (member?.version ? h("span", { class: "version" }, member.version) : undefined);

function machine(room, computer, hub) {
  const id = `${room}/${computer.name}`;
  const tally = hub.by_computer[id];
  return h(
    "li",
    { "data-key": computer.name, "data-computer": computer.name },
    h("div", { class: "line", "data-health": health(tally) }, h("i", { class: "dot" }), h("span", {}, computer.name), version(computer), counts(tally)),
    h("p", { class: "faint" }, words(tally, computer)),
    offered(id, computer.tools),
  );
}

/** A computer that was never asked is neither well nor ill. */
const health = (tally) => (tally === undefined ? "unknown" : tally.failed_in_a_row > 0 ? "ill" : "well");

const counts = (tally) =>
  tally === undefined ? undefined : h("span", { class: "tally" }, t("tally", { n: number(tally.requests), of: number(tally.failed) }));

function words(tally, { calls_under_way: calls }) {
  const said = [t(`health-${health(tally)}`, { n: number(tally?.failed_in_a_row) })];
  if (calls > 0) said.push(t("calls-now", { n: number(calls) }));
  return said.join(" · ");
}

/** The tools of a computer, behind their number. */
function offered(id, tools) {
  if (tools === null) return h("p", { class: "faint" }, t("tools-unknown"));
  const toggle = (event) => (event.currentTarget.open ? opened.add(id) : opened.delete(id));
  return h(
    "details",
    { open: opened.has(id), on: { toggle } },
    h("summary", {}, t("tools-of", { n: number(tools.length) })),
    h("ul", { class: "tools" }, tools.map((name) => h("li", {}, h("span", {}, name)))),
  );
}

async function follow() {
  for (;;) {
    if (!document.hidden) await load();
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

follow();
