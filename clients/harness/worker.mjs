// A worker for the kills test: `node worker.mjs DIST URL LEDGER ID`. It offers what worker.py offers, so both are one worker.

import fs from "node:fs";
import { pathToFileURL } from "node:url";
import { peer } from "./peers.mjs";

const [dist, url, ledger, id] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${dist}/${name}.js`));
const [{ Client }, { tool }, { Worker }] = await Promise.all(["index", "tool", "worker"].map(load));
const parameters = { type: "object", properties: { n: { type: "integer" } }, required: ["n"], additionalProperties: false };

async function effect({ n }, { idempotencyKey, attempt }) {
  fs.appendFileSync(ledger, `begin ${idempotencyKey} ${attempt}\n`);
  await new Promise((resolve) => setTimeout(resolve, n % 40));
  fs.appendFileSync(ledger, `end ${idempotencyKey} ${attempt}\n`);
  return n;
}

const tools = [
  tool({ name: "pay", description: "Pays.", parameters, run: effect }),
  tool({ name: "note", description: "Notes.", parameters, idempotent: true, run: effect }),
];
const client = new Client(url, { token: process.env.TOKEN, WebSocket: peer("ws").WebSocket, retry: { base: 10, max: 100 } });
const worker = new Worker(client, tools, { name: "money" });
worker.workerId = id;
await worker.ready;
console.log("ready");
await worker.ended;
