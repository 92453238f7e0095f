// A tool with a schema that is easy to get wrong: the model misspells a key, reads the error and corrects itself.

import { Client, serve, tool, Worker } from "budao";
import { z } from "zod";

const stock = tool({
  name: "stock",
  description: "Counts the pieces or boxes of an item in the warehouse.",
  parameters: z.object({ item_number: z.string().describe("Such as B-1042."), unit: z.enum(["piece", "box"]).default("piece") }),
  readOnly: true,
  run: ({ item_number, unit }) => ({ item_number, unit, count: unit === "box" ? 3 : 36 }),
});

const server = await serve();
const client = new Client(server.url, { token: server.token });
const worker = new Worker(client, [stock]);
await worker.ready;
const session = await client.create();
for await (const event of session.stream("call stock with item_number=B-1042, unit=box")) {
  if (event.event === "agent.tool_result" && event.metadata.status === "failed") console.log("the model was wrong:", event.metadata.error_code);
  if (event.event === "agent.tool_call") console.log("it calls:", event.metadata.tool_name, event.metadata.args);
  if (event.event === "agent.final_answer") console.log("it answers:", event.content);
}
session.close();
worker.stop();
await server.stop();
