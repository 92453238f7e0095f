// A long call that the user cancels: the cancellation reaches the function.

import { setTimeout as wait } from "node:timers/promises";
import { Client, serve, tool, Worker } from "budao";

const search = tool({
  name: "search",
  description: "Searches a large archive.",
  parameters: { type: "object", properties: { words: { type: "string" } }, required: ["words"], additionalProperties: false },
  readOnly: true,
  deadline: 300_000,
  run: async ({ words }, { signal, progress }) => {
    signal.addEventListener("abort", () => console.log("the function was cancelled"));
    for (let shelf = 0; shelf < 1000; shelf += 1) {
      progress(`shelf ${shelf}\n`);
      await wait(50, undefined, { signal });
    }
    return `nothing about ${words}`;
  },
});

const server = await serve();
const client = new Client(server.url, { token: server.token });
const worker = new Worker(client, [search]);
await worker.ready;
const session = await client.create();
let cancelled;
for await (const event of session.stream("call search with words=tumbler")) {
  if (event.event === "agent.tool_output") cancelled ??= session.cancel();
  if (event.event === "agent.interrupted") console.log("the run was cancelled");
}
await cancelled;
session.close();
worker.stop();
await server.stop();
