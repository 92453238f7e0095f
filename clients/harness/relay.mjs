// Cuts front ends off a relayed agent and kills the relay: `node relay.mjs AGENT --cuts N --kills N --straight N --first N`.
//
// AGENT is `pydantic` or `agno`, with a scripted model that counts aloud. The front end is HttpAgent of AG-UI, whose own verifier
// reads every stream. A run that was cut must have the whole count; a run whose relay was killed must end with ERR_CONN_010 and
// a beginning of the count. `--straight` cuts the same front end off the agent itself. `--first`
// measures the time to the first text of so many runs in one thread, through the relay and straight in turns: the medians in
// milliseconds, and that of the differences. Prints one line of JSON.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { peerFile } from "./peers.mjs";
import { startProxy } from "./proxy.mjs";
import { startServer, TOKEN } from "./server.mjs";

const LAST = 30;
const PAUSE = "0.01";
const CUTS_IN_A_RUN = 6;
const AT_ONCE = 6;
const AGENTS = { pydantic: ["pydantic-ag-ui", "pydantic_agent.py", "/"], agno: ["agno-ag-ui", "agno_agent.py", "/agui"] };

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { cuts: { type: "string", default: "60" }, kills: { type: "string", default: "5" }, straight: { type: "string", default: "10" }, first: { type: "string", default: "10" } },
});
const counted = Array.from({ length: LAST }, (_, n) => `${n + 1} `).join("");
const { HttpAgent } = await import(pathToFileURL(peerFile("@ag-ui/client", "front-ends")));
const { resumable } = await import("../typescript/dist/front_end.js");
const Resumable = resumable(HttpAgent, { retry: { base: 5, max: 100, tries: 2000 } });
// HttpAgent reports a cut twice, the second time to nobody.
process.on("unhandledRejection", () => {});

/** Starts the agent; gives its address. */
async function startAgent(name, ledger) {
  const [peer, script, route] = AGENTS[name];
  const python = path.join(process.env.BUDAO_PEERS || path.join(os.homedir(), ".cache/budao/peers"), peer, "bin/python");
  const file = fileURLToPath(new URL(`../../crates/cli/tests/it/relay/${script}`, import.meta.url));
  const child = spawn(python, ["-B", file, ledger, PAUSE], { stdio: ["ignore", "pipe", "inherit"] });
  const port = await new Promise((resolve) => child.stdout.once("data", (bytes) => resolve(Number(String(bytes)))));
  for (let up = false; !up; ) up = await fetch(`http://127.0.0.1:${port}/`).then(() => true, () => false);
  return { port, route, stop: () => child.kill() };
}

let runs = 0;
/** Runs one count, in a new thread unless `agent` has one. `onText` is called with the length of the text so far. */
async function run(Agent, url, headers, onText, agent = new Agent({ url, headers, threadId: `thread-${++runs}` })) {
  const result = { text: "", end: undefined, code: undefined };
  agent.addMessage({ id: `message-${++runs}`, role: "user", content: `count to ${LAST}` });
  const subscriber = {
    onTextMessageContentEvent: ({ event }) => void onText((result.text += event.delta).length),
    onRunFinishedEvent: () => void (result.end = "finished"),
    onRunErrorEvent: ({ event }) => void ((result.end = "error"), (result.code = event.code)),
  };
  await agent.runAgent({}, subscriber).catch(() => (result.end = "cut"));
  result.end ??= "cut";
  return result;
}

/** Runs a task so many times, a few at once. */
async function many(count, task) {
  let next = 0;
  const worker = async () => {
    while (next++ < count) await task();
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

/** One run through a line that is cut after every few words. */
async function cutRun(Agent, port, route, headers, cuts) {
  const proxy = await startProxy(port);
  let done = 0;
  const step = Math.floor(counted.length / (cuts + 1));
  const result = await run(Agent, `http://127.0.0.1:${proxy.port}${route}`, headers, (length) => {
    if (done < cuts && length >= step * (done + 1)) {
      done += 1;
      proxy.cutAll();
    }
  });
  proxy.stop();
  return { ...result, cuts: done };
}

const ledger = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "budao-relay-")), "ledger");
const asked = () => (fs.existsSync(ledger) ? fs.readFileSync(ledger, "utf8").split("\n").filter((line) => line.startsWith("request")).length : 0);
const agent = await startAgent(positionals[0], ledger);
const options = { args: ["--engine", `agui:http://127.0.0.1:${agent.port}${agent.route}`] };
const headers = { authorization: `Bearer ${TOKEN}` };
let server = await startServer(options);
const report = { agent: positionals[0], cuts: 0, cutRuns: 0, kills: 0, killedRuns: 0, straightRuns: 0, straightLost: 0 };

await many(Math.ceil(Number(values.cuts) / CUTS_IN_A_RUN), async () => {
  const result = await cutRun(Resumable, server.port, "/ag-ui", headers, CUTS_IN_A_RUN);
  assert.deepEqual([result.end, result.text], ["finished", counted]);
  report.cuts += result.cuts;
  report.cutRuns += 1;
});
assert.equal(asked(), report.cutRuns, "the relay asked by itself");

const line = await startProxy(() => server.port);
while (report.kills < Number(values.kills)) {
  let begun = 0;
  let allBegun;
  const ready = new Promise((resolve) => (allBegun = resolve));
  const runsOfRound = Array.from({ length: 3 }, () => {
    let isNew = true;
    return run(Resumable, `http://127.0.0.1:${line.port}/ag-ui`, headers, () => {
      if (isNew && ++begun === 3) allBegun();
      isNew = false;
    });
  });
  await ready;
  await server.crash();
  server = await startServer({ ...options, home: server.home });
  for (const result of await Promise.all(runsOfRound)) {
    if (result.end === "finished") assert.equal(result.text, counted);
    else assert.deepEqual([result.end, result.code, counted.startsWith(result.text)], ["error", "ERR_CONN_010", true]);
    report.killedRuns += 1;
  }
  report.kills += 1;
}
assert.equal(asked(), report.cutRuns + report.killedRuns, "the relay asked by itself");
line.stop();

await many(Number(values.straight), async () => {
  const result = await cutRun(Resumable, agent.port, agent.route, {}, 1);
  report.straightRuns += 1;
  report.straightLost += result.text === counted ? 0 : 1;
});
/** A function that measures the time from a request to its first text, in milliseconds, in one thread. */
function firstText(url, headers) {
  const agent = new HttpAgent({ url, headers, threadId: `thread-${++runs}` });
  return async () => {
    const began = performance.now();
    let first;
    await run(HttpAgent, url, headers, () => void (first ??= performance.now() - began), agent);
    return first;
  };
}

const median = (times) => Math.round(([...times].sort((a, b) => a - b)[Math.floor(times.length / 2)] ?? 0) * 10) / 10;
const straight = firstText(`http://127.0.0.1:${agent.port}${agent.route}`, {});
const relayed = firstText(`http://127.0.0.1:${server.port}/ag-ui`, headers);
// The first run of a thread opens its session, and warms up.
await straight();
await relayed();
const times = [];
for (let index = 0; index < Number(values.first); index += 1) times.push([await straight(), await relayed()]);
report.firstTextStraight = median(times.map(([straight]) => straight));
report.firstTextRelayed = median(times.map(([, relayed]) => relayed));
report.firstTextAdded = median(times.map(([straight, relayed]) => relayed - straight));
await server.stop();
agent.stop();
console.log(JSON.stringify({ ...report, requests: asked() }));
process.exit(0);
