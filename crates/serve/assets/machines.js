// Rooms, and who is in them, as the hub of this server counts them.

import { api } from "./api.js";
import { at, h, number, refill, t } from "./kit.js";
import "./shell.js";

async function load() {
  let stats;
  try {
    stats = await api("/smcp/stats");
  } catch {
    at("no-hub").hidden = false;
    return;
  }
  const rooms = roomsOf(stats);
  at("no-rooms").hidden = rooms.size > 0;
  at("figures").hidden = false;
  const failed = Object.values(stats.codes ?? {}).reduce((sum, n) => sum + n, 0);
  refill(
    at("figures"),
    figure("rooms", stats.rooms),
    figure("computers", stats.computers),
    figure("connections", stats.connections),
    figure("under-way", stats.calls_under_way),
    figure("errors", failed),
  );
  refill(at("rooms"), [...rooms].map(([name, room]) => card(name, room)), tools(stats.by_tool ?? {}));
}

/** Rooms with their computers; a computer's name is `room/computer`. */
export function roomsOf(stats) {
  const rooms = new Map(Object.entries(stats.by_room ?? {}).map(([name, tally]) => [name, { ...tally, computers: [] }]));
  for (const [name, tally] of Object.entries(stats.by_computer ?? {})) {
    const cut = name.indexOf("/");
    const room = cut < 0 ? "" : name.slice(0, cut);
    if (!rooms.has(room)) rooms.set(room, { requests: 0, failed: 0, computers: [] });
    rooms.get(room).computers.push({ name: name.slice(cut + 1), ...tally });
  }
  return rooms;
}

const figure = (name, n) => h("div", {}, h("dt", {}, t(name)), h("dd", {}, number(n)));

function card(name, room) {
  return h(
    "section",
    { class: "room" },
    h("h2", {}, t("room", { name })),
    h("p", { class: "faint" }, t("tally", { n: number(room.requests), of: number(room.failed) })),
    room.computers.length === 0 ? h("p", { class: "faint" }, t("no-computers")) : h("ul", {}, room.computers.map(line)),
  );
}

function line({ name, requests, failed }) {
  return h("li", { "data-health": failed === 0 ? "well" : "ill" }, h("i", { class: "dot" }), h("span", {}, name), h("span", { class: "tally" }, t("tally", { n: number(requests), of: number(failed) })));
}

function tools(byTool) {
  const names = Object.entries(byTool);
  if (names.length === 0) return undefined;
  return h("section", { class: "room" }, h("h2", {}, t("tools")), h("ul", {}, names.map(([name, tally]) => line({ name, ...tally }))));
}

load();
