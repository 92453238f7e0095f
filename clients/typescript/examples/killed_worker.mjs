// A worker that is killed in a call. An idempotent call runs again elsewhere; the outcome of any other is unknown.

import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Client, serve, tool, Worker } from "budao";

const ledger = process.env.LEDGER ?? path.join(fs.mkdtempSync(path.join(os.tmpdir(), "budao-")), "ledger");
const written = () => (fs.existsSync(ledger) ? fs.readFileSync(ledger, "utf8") : "");
const parameters = { type: "object", properties: { what: { type: "string" } }, required: ["what"], additionalProperties: false };

/** Writes down that it began, and takes a while if it is the first one. */
async function work(what) {
  const isFirst = !written().includes(what);
  fs.appendFileSync(ledger, `${what} began in ${process.pid}\n`);
  await wait(isFirst ? 60_000 : 0);
  return "done";
}
const index = tool({ name: "index", description: "Builds an index; twice does no harm.", parameters, idempotent: true, run: ({ what }) => work(`index ${what}`) });
const post = tool({ name: "post", description: "Sends a parcel; twice would be wrong.", parameters, run: ({ what }) => work(`post ${what}`) });

if (process.argv[2] === "worker") {
  const worker = new Worker(new Client(process.argv[3], { token: process.env.TOKEN }), [index, post], { name: "parcels" });
  process.once("SIGTERM", () => worker.drain());
  await worker.ready;
  console.log("ready");
  await worker.ended;
} else {
  const server = await serve({ permission: "auto" });
  const env = { ...process.env, TOKEN: server.token, LEDGER: ledger };
  const startWorker = async () => {
    const child = spawn(process.execPath, [fileURLToPath(import.meta.url), "worker", server.url], { env, stdio: ["ignore", "pipe", "inherit"] });
    await new Promise((resolve) => child.stdout.once("data", resolve));
    return child;
  };
  const session = await new Client(server.url, { token: server.token }).create();
  for (const what of ["index all", "post parcel"]) {
    const [name, argument] = what.split(" ");
    let worker = await startWorker();
    const turn = session.run(`call ${name} with what=${argument}`, {
      onEvent: ({ event, metadata, show_content: text }) => {
        if (event === "agent.tool_result" && metadata.status === "failed" && metadata.kind !== "invalid_arguments") console.log("told:", metadata.error_code, text);
      },
    });
    while (!written().includes(what)) await wait(50);
    console.log(`killing the worker in \`${what}\``);
    worker.kill("SIGKILL");
    worker = await startWorker();
    console.log("end:", (await turn).content);
    worker.kill("SIGTERM");
  }
  console.log(written().trimEnd());
  session.close();
  await server.stop();
}
