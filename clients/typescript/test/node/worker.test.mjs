// Workers in Node against the real server: what the model is told, and what happens once when things break.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Client, Rejected } from "../../dist/index.js";
import { tool, ToolError } from "../../dist/tool.js";
import { Worker } from "../../dist/worker.js";
import { peer } from "../../../harness/peers.mjs";
import { startProxy } from "../../../harness/proxy.mjs";
import { startServer, TOKEN } from "../../../harness/server.mjs";

const { WebSocket } = peer("ws");
const { z } = peer("zod", "zod");
const options = { token: TOKEN, WebSocket, retry: { base: 5, max: 50 } };
const silent = { onError: () => {} };

/** A model that makes these calls, one in each step, and then answers. */
const script = (...calls) =>
  `order = "history"\n${calls.map(([name, args]) => `[[step]]\n[[step.call]]\ntool = "${name}"\narguments = '${JSON.stringify(args)}'\n`).join("")}[[step]]\ntext = "All done."\nrepeat = "forever"\n`;

const start = (calls, more = {}) =>
  startServer({ script: script(...calls), args: ["--permission", "auto"], env: { BUDAO__SERVE__WORKERS__GRACE: "1000" }, ...more });

/** A worker that comes back finds its calls, however slow the machine is. */
const patient = { env: { BUDAO__SERVE__WORKERS__GRACE: "120000" } };

async function results(session) {
  const told = [];
  await session.run("go", { onEvent: (event) => event.event === "agent.tool_result" && told.push(event) });
  return told;
}

/** A failed call as the server renders it for the model or for the operator. */
async function rendered(server, event, audience) {
  const address = `${server.url.replace("ws:", "http:").replace(/\/ws$/, "")}/v1/sessions/${event.session_id}/faults/${event.seq}`;
  const answer = await fetch(address, { headers: { Authorization: `Bearer ${TOKEN}` } });
  return JSON.stringify((await answer.json())[audience]);
}

const pay = (run) => tool({ name: "pay", description: "Pays.", parameters: z.object({ n: z.number().int() }), run });

test("an error reaches the model as its author wrote it, and no other does", async () => {
  const server = await start([["lend", {}], ["find", {}]]);
  const client = new Client(server.url, options);
  const lend = tool({
    name: "lend", description: "Lends.", parameters: { type: "object" },
    run: () => { throw new ToolError("Faust is lent out.", { advice: "Ask for another book", data: { back: "Monday" } }); },
  });
  const find = tool({
    name: "find", description: "Finds.", parameters: { type: "object" },
    run: () => { throw new Error("no such file: /srv/vault/key.pem, password=hunter2"); },
  });
  const worker = new Worker(client, [lend, find], silent);
  await worker.ready;
  const session = await client.create();
  const told = await results(session);
  assert.deepEqual(told.map((event) => event.metadata.status), ["failed", "failed"]);
  assert.equal(told[0].metadata.error, "Faust is lent out.");
  assert.doesNotMatch(JSON.stringify(told[1]), /vault|no such file/);
  const [lent, broken] = await Promise.all(told.map((event) => rendered(server, event, "model")));
  for (const part of ["Faust is lent out.", "Ask for another book", "Monday"]) assert.ok(lent.includes(part), lent);
  assert.doesNotMatch(broken, /vault|no such file|hunter2|at Object|worker\.test/);
  const operator = await rendered(server, told[1], "operator");
  assert.match(operator, /no such file/);
  assert.doesNotMatch(operator, /hunter2/);
  session.close();
  worker.stop();
  await server.stop();
});

test("a number that JSON cannot express is an error that names its place", async () => {
  const server = await start([["mean", {}], ["sum", {}]]);
  const client = new Client(server.url, options);
  const plain = { parameters: { type: "object" }, readOnly: true };
  const mean = tool({ name: "mean", description: "A mean.", ...plain, run: () => ({ of: [{ "a/b": 0 / 0 }] }) });
  const sum = tool({ name: "sum", description: "A sum.", ...plain, run: () => Number.POSITIVE_INFINITY });
  const worker = new Worker(client, [mean, sum], silent);
  await worker.ready;
  const session = await client.create();
  const told = await results(session);
  assert.deepEqual(told.map((event) => [event.metadata.status, event.metadata.error]), [
    ["failed", "Its result has NaN at /of/0/a~1b, which JSON cannot express. The work itself was done; only its answer was lost."],
    ["failed", "Its result has Infinity at /, which JSON cannot express. The work itself was done; only its answer was lost."],
  ]);
  session.close();
  worker.stop();
  await server.stop();
});

test("arguments that do not fit never reach the function", async () => {
  const server = await start([["pay", { m: 7 }], ["pay", { n: 7 }]]);
  const client = new Client(server.url, options);
  const paid = [];
  const worker = new Worker(client, [pay(({ n }) => paid.push(n))]);
  await worker.ready;
  const session = await client.create();
  const told = await results(session);
  assert.deepEqual(told.map((event) => event.metadata.error_code), ["ERR_VAL_002", undefined]);
  assert.deepEqual(paid, [7]);
  session.close();
  worker.stop();
  await server.stop();
});

test("a cancelled run aborts the signal of its call", async () => {
  const server = await start([["wait", {}]]);
  const client = new Client(server.url, options);
  let aborted;
  const ended = new Promise((resolve) => (aborted = resolve));
  const wait = tool({
    name: "wait", description: "Waits.", parameters: { type: "object" }, readOnly: true,
    run: (_, { signal, progress }) => {
      progress("waiting");
      return new Promise((_, reject) => signal.addEventListener("abort", () => (aborted(), reject(signal.reason))));
    },
  });
  const worker = new Worker(client, [wait], silent);
  await worker.ready;
  const session = await client.create();
  let cancelled;
  for await (const event of session.stream("go")) {
    if (event.event === "agent.tool_output") cancelled ??= session.cancel();
  }
  await cancelled;
  await ended;
  session.close();
  worker.stop();
  await server.stop();
});

test("connections of a worker cut at growing numbers of bytes run every call once", async () => {
  const calls = Array.from({ length: 20 }, (_, n) => ["pay", { n }]);
  const server = await start(calls, patient);
  const proxy = await startProxy(server.port, (n) => ({ cutAfter: 700 + 531 * n }));
  const paid = [];
  const worker = new Worker(new Client(`ws://127.0.0.1:${proxy.port}/ws`, options), [pay(({ n }) => (paid.push(n), n))], silent);
  await worker.ready;
  const session = await new Client(server.url, options).create();
  const told = await results(session);
  assert.ok(proxy.accepted() > 3, `${proxy.accepted()} connections`);
  assert.deepEqual(told.map((event) => [event.metadata.status, event.content]), calls.map(([, { n }]) => ["success", String(n)]));
  assert.deepEqual(paid, calls.map(([, { n }]) => n));
  session.close();
  worker.stop();
  proxy.stop();
  await server.stop();
});

test("a call survives kill -9 of the server and runs once", async () => {
  let victim = await start([["pay", { n: 7 }]], patient);
  const { home } = victim;
  const proxy = await startProxy(() => victim.port);
  const client = new Client(`ws://127.0.0.1:${proxy.port}/ws`, options);
  let free, held;
  const [isFree, isHeld] = [new Promise((resolve) => (free = resolve)), new Promise((resolve) => (held = resolve))];
  const keys = [];
  const worker = new Worker(client, [pay(async ({ n }, { idempotencyKey }) => (keys.push(idempotencyKey), held(), await isFree, n))]);
  await worker.ready;
  const session = await client.create();
  const running = results(session);
  await isHeld;
  await victim.crash();
  victim = await start([["pay", { n: 7 }]], { home, ...patient });
  free();
  assert.deepEqual((await running).map((event) => event.content), ["7"]);
  assert.equal(keys.length, 1);
  session.close();
  worker.stop();
  proxy.stop();
  await victim.stop();
});

/** A worker in a process of its own, which can be killed, with the ledger of its effects. */
async function startBooking(server) {
  const program = fileURLToPath(new URL("../../../harness/booking_worker.mjs", import.meta.url));
  const child = spawn(process.execPath, [program, server.url, server.home], { env: { ...process.env, TOKEN }, stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((resolve) => child.stdout.once("data", resolve));
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const end = (signal) => (child.kill(signal), ended);
  const lines = (name) => {
    const file = path.join(server.home, name);
    return fs.existsSync(file) ? fs.readFileSync(file, "utf8").trimEnd().split("\n") : [];
  };
  const until = async (name) => {
    while (lines(name).length === 0) await wait(20);
  };
  return { end, lines, until };
}

/** A call whose worker is killed when `file` has a line; `pause` makes it wait. Returns the call's result and the next worker. */
async function killedBooking(server, file, pause) {
  fs.writeFileSync(path.join(server.home, pause), "");
  const session = await new Client(server.url, options).create();
  const worker = await startBooking(server);
  const running = results(session);
  await worker.until(file);
  await worker.end("SIGKILL");
  fs.rmSync(path.join(server.home, pause));
  const next = await startBooking(server);
  const [told] = await running;
  session.close();
  return { told, next };
}

test("a worker killed after the effect finds the outcome when it comes back", async () => {
  const server = await start([["book", { n: 1 }]]);
  const { told, next } = await killedBooking(server, "ledger", "late");
  assert.deepEqual([told.metadata.status, told.content], ["success", '{"receipt":1}']);
  const [key] = next.lines("ledger")[0].split(" ");
  assert.deepEqual(next.lines("ledger"), [`${key} 1 1`], "the effect is not repeated");
  assert.deepEqual(next.lines("asked"), [`${key} 1`], "the question has the key of the call");
  await next.end("SIGTERM");
  await server.stop();
});

test("a worker killed before the effect runs the call again", async () => {
  const server = await start([["book", { n: 1 }]]);
  const { told, next } = await killedBooking(server, "begun", "early");
  assert.deepEqual([told.metadata.status, told.content], ["success", '{"receipt":1}']);
  assert.deepEqual(next.lines("ledger").map((line) => line.split(" ").slice(1)), [["1", "2"]]);
  assert.equal(next.lines("begun").length, 2);
  await next.end("SIGTERM");
  await server.stop();
});

test("a worker that cannot tell leaves the outcome unknown", async () => {
  const server = await start([["book", { n: 1 }]]);
  fs.writeFileSync(path.join(server.home, "lost"), "");
  const { told, next } = await killedBooking(server, "ledger", "late");
  assert.equal(told.metadata.status, "failed");
  assert.equal(told.metadata.kind, "outcome_unknown");
  assert.deepEqual([next.lines("ledger").length, next.lines("asked").length], [1, 1]);
  await next.end("SIGTERM");
  await server.stop();
});

test("an offer that shadows a tool of the server is refused at once", async () => {
  const server = await start([]);
  const shadow = tool({ name: "fs_read", description: "Shadows.", parameters: { type: "object" }, run: () => 1 });
  const worker = new Worker(new Client(server.url, options), [shadow]);
  await assert.rejects(worker.ready, Rejected);
  await assert.rejects(worker.ended, Rejected);
  await server.stop();
});

test("a worker without open calls that drains ends though its server is gone", async () => {
  const server = await start([]);
  const worker = new Worker(new Client(server.url, options), [pay(() => "paid")], silent);
  await worker.ready;
  await server.crash();
  await worker.drain();
  await worker.ended;
  await server.stop();
});
