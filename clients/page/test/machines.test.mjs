// Rooms and machines on the page, with real computers in them.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { peer } from "../../harness/peers.mjs";
import { TOKEN } from "../../harness/server.mjs";
import { onPage, overflow, picture, until } from "../stage.mjs";

const folder = fileURLToPath(new URL("../../../target/debug/", import.meta.url));
const program = process.env.BUDAO_BIN || path.join(folder, "budao");
/** A scripted MCP server: `cargo build -p budao-smcp --example fake_mcp`. */
const tools = path.join(folder, "examples/fake_mcp");

/** A folder with a configuration in which this server's sessions are the agent of a room. */
function home() {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-machines-"));
  fs.writeFileSync(path.join(home, "budao.toml"), '[[smcp]]\nroom = "office"\n');
  const server = { name: "tools", type: "stdio", default_tool_meta: { auto_apply: true }, server_parameters: { command: tools } };
  fs.writeFileSync(path.join(home, "computer.json"), JSON.stringify({ servers: [server] }));
  return home;
}

/** A computer of ours in a room; `stop()` ends it. */
async function computer(origin, home, name, room) {
  const args = ["smcp", "computer", "--url", origin, "--token", TOKEN, "--name", name, "--config", "computer.json", room];
  const child = spawn(program, args, { cwd: home, env: { PATH: process.env.PATH, HOME: home }, stdio: ["pipe", "ignore", "pipe"] });
  let said = "";
  child.stderr.on("data", (bytes) => (said += bytes));
  await until(() => said.includes("joined"));
  const ended = new Promise((resolve) => child.once("exit", resolve));
  return {
    stop: () => {
      child.kill("SIGTERM");
      return ended;
    },
  };
}

/** Calls a tool by hand. */
function call(origin, home, room, name, tool, params) {
  const args = ["smcp", "call", "--url", origin, "--token", TOKEN, room, name, tool, JSON.stringify(params)];
  return spawnSync(program, args, { cwd: home, env: { PATH: process.env.PATH, HOME: home }, encoding: "utf8" });
}

test("rooms, their agents, computers, tools and health are seen as they come and go", async () => {
  assert.ok(fs.existsSync(tools), "cargo build -p budao-smcp --example fake_mcp");
  const place = home();
  const options = { home: place, args: ["--smcp", "--config", "budao.toml"], where: "/machines" };
  await onPage(options, async (page, { origin, seen }) => {
    const office = page.locator('[data-room="office"]');
    await office.getByText("Agent budao").waitFor();
    await office.getByText("No computers").waitFor();
    const first = await computer(origin, place, "desk", "office");
    const desk = office.locator('[data-computer="desk"]');
    await desk.locator('[data-health="well"]').waitFor();
    await desk.locator("summary", { hasText: /^[0-9]+ tools$/ }).click();
    await desk.getByText("tools__echo", { exact: true }).waitFor();

    const second = await computer(origin, place, "bench", "lab");
    const bench = page.locator('[data-room="lab"] [data-computer="bench"]');
    await bench.locator('[data-health="unknown"]').waitFor();
    await bench.getByText("No agent has listed").waitFor();
    await until(() => call(origin, place, "lab", "bench", "tools__echo", { text: "hi" }).stdout === "hi\n");
    await bench.locator('[data-health="well"]').waitFor();
    assert.match(call(origin, place, "lab", "bench", "tools__no", {}).stderr, /^4003 /);
    await bench.locator('[data-health="ill"]').waitFor();
    await bench.getByText("The last 1 requests failed").waitFor();
    assert.equal(await desk.locator("details").getAttribute("open"), "", "what was opened stays open");
    assert.equal(await page.locator('[data-figure="computers"]').textContent(), "2");
    await picture(page, "machines");
    await page.setViewportSize({ width: 360, height: 740 });
    assert.equal(await overflow(page), 0);
    await picture(page, "narrow-machines-live");

    await second.stop();
    await page.locator('[data-room="lab"]').waitFor({ state: "detached" });
    await first.stop();
    await office.getByText("No computers").waitFor();
    assert.deepEqual(seen.errors, []);
  });
});

test("MCP servers are shown with their transport, their tools, and what failed since when", async () => {
  assert.ok(fs.existsSync(tools), "cargo build -p budao-smcp --example fake_mcp");
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-mcp-"));
  const server = (name, command) => `[[mcp]]\nname = "${name}"\ntransport = { type = "stdio", command = "${command}" }\n`;
  fs.writeFileSync(path.join(home, "short.sh"), `#!/bin/sh\nexec timeout 3 ${tools}\n`, { mode: 0o755 });
  fs.writeFileSync(path.join(home, "budao.toml"), server("short", path.join(home, "short.sh")) + server("desk", tools) + server("broken", "/nowhere/no-server") + '[[mcp]]\nname = "away"\ntransport = { type = "http", url = "http://127.0.0.1:9/mcp" }\n');
  await onPage({ home, args: ["--config", "budao.toml"], where: "/machines" }, async (page, { api, seen }) => {
    const card = (name) => page.locator(`[data-server="${name}"]`);
    await page.locator('[data-server="desk"][data-state="connected"]').waitFor();
    assert.match(await card("desk").textContent(), /stdio.*\d+ tools.*connected · since \d\d:\d\d:\d\d/);
    // One that ends by itself is seen to be connected, then to have failed.
    const { since: first } = (await api("/api/stats?window=5m")).mcp.find(({ name }) => name === "short");
    await card("short").getByText(/connected · since/).waitFor();
    await card("short").getByText(/Last error: ERR_/).waitFor();
    await until(async () => (await api("/api/stats?window=5m")).mcp.find(({ name }) => name === "short").since > first);
    await page.locator('[data-server="away"][data-state="down"]').waitFor();
    assert.match(await card("away").textContent(), /http.*failed, waiting to try again · since .*It waits .* before the next attempt.*Last error: ERR_/);
    await page.locator('[data-server="broken"][data-state="down"]').waitFor();
    assert.match(await card("broken").textContent(), /Last error: ERR_/);
    await picture(page, "mcp-servers");
    const { mcp } = await api("/api/stats?window=5m");
    assert.deepEqual(mcp.slice(1).map(({ name, transport, state }) => [name, transport, state]), [["desk", "stdio", "connected"], ["broken", "stdio", "down"], ["away", "http", "down"]]);
    await page.setViewportSize({ width: 360, height: 740 });
    assert.equal(await overflow(page), 0);
    assert.deepEqual(seen.errors, []);
  });
});

/** A process of a worker, as a program in any language would be one. `calls` has what it was asked to run; nothing ends them. */
async function worker(server, name, id, tools) {
  const { WebSocket } = peer("ws");
  const socket = new WebSocket(server.url, ["budao.v1", `bearer.${TOKEN}`]);
  const calls = [];
  const send = (frame) => socket.send(JSON.stringify(frame));
  await new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("message", (bytes) => {
      const frame = JSON.parse(bytes);
      if (frame.event === "system.connected") send({ event: "user.offer_tools", command_id: "offer", content: { worker: name, worker_id: id, capacity: 4, tools, holding: [] } });
      if (frame.metadata?.command_id === "offer") (frame.metadata.ok === true ? resolve : reject)(frame);
      if (frame.event !== "tool.call") return;
      calls.push(frame);
      send({ event: "user.tool_claim", command_id: `claim-${calls.length}`, session_id: frame.session_id, step_id: frame.step_id, content: { attempt: frame.metadata.attempt, worker_id: id } });
    });
  });
  return { calls, stop: () => socket.close() };
}

test("workers are shown with their processes, their tools and the calls that they hold, as they come and go", async () => {
  const script = '[[step]]\n[[step.call]]\ntool = "pay"\narguments = { invoice = 7 }\n[[step]]\ntext = "Paid."\nrepeat = "forever"\n';
  const pay = { name: "pay", description: "Pays an invoice.", parameters: { type: "object", properties: { invoice: { type: "integer" } }, required: ["invoice"] }, idempotent: true };
  await onPage({ script, args: ["--permission", "auto"], where: "/machines" }, async (page, { server, api, seen }) => {
    const card = page.locator('[data-worker="billing"]');
    const first = await worker(server, "billing", "w-1", [pay, { ...pay, name: "refund" }]);
    await card.getByText("1 connected · 0 of 4 calls").waitFor();
    assert.equal(await card.locator("h2").textContent(), "Worker billing");
    await card.locator("summary", { hasText: "2 tools" }).click();
    assert.deepEqual(await card.locator(".tools li").allTextContents(), ["pay", "refund"]);
    const second = await worker(server, "billing", "w-2", [pay, { ...pay, name: "refund" }]);
    await card.getByText("2 connected · 0 of 8 calls").waitFor();
    const { session_id: id } = await api("/v1/sessions", {});
    await api(`/v1/sessions/${id}/messages`, { content: "go" });
    await card.getByText("2 connected · 1 of 8 calls").waitFor();
    assert.equal(first.calls.length + second.calls.length, 1);
    assert.ok(await card.locator(".tools").isVisible(), "what was opened stays open");
    await picture(page, "workers");
    await page.setViewportSize({ width: 360, height: 740 });
    assert.equal(await overflow(page), 0);
    first.stop();
    second.stop();
    await card.getByText("Not connected").waitFor({ timeout: 60_000 });
    assert.deepEqual(await card.locator(".tools li").allTextContents(), ["pay", "refund"], "what it offers stays known");
    assert.deepEqual(seen.errors, []);
  });
});
