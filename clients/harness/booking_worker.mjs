// A worker for tests that kill it: `book` writes a line before and after it begins, and `reconcile` reads the ledger.

import fs from "node:fs";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { Client } from "../typescript/dist/index.js";
import { tool } from "../typescript/dist/tool.js";
import { Worker } from "../typescript/dist/worker.js";
import { peer } from "./peers.mjs";

const { WebSocket } = peer("ws");
const [url, home] = process.argv.slice(2);
const file = (name) => path.join(home, name);
const write = (name, line) => fs.appendFileSync(file(name), `${line}\n`);

/** Waits while a file exists: the test kills the process meanwhile. */
async function pause(name) {
  while (fs.existsSync(file(name))) await wait(10);
}

const book = tool({
  name: "book",
  description: "Books.",
  parameters: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
  run: async ({ n }, { idempotencyKey, attempt }) => {
    write("begun", n);
    await pause("early");
    write("ledger", `${idempotencyKey} ${n} ${attempt}`);
    await pause("late");
    return { receipt: n };
  },
  reconcile: ({ n }, { idempotencyKey }) => {
    write("asked", `${idempotencyKey} ${n}`);
    if (fs.existsSync(file("lost"))) return { verdict: "cannot_tell" };
    const done = fs.existsSync(file("ledger")) && fs.readFileSync(file("ledger"), "utf8").includes(`${idempotencyKey} ${n} `);
    return done ? { verdict: "happened", result: { receipt: n } } : { verdict: "did_not_happen" };
  },
});

const worker = new Worker(new Client(url, { token: process.env.TOKEN, WebSocket, retry: { base: 5, max: 50 } }), [book], { name: "bookings" });
process.once("SIGTERM", () => worker.drain());
await worker.ready;
console.log("ready");
await worker.ended;
