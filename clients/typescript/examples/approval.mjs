// A tool that a person must confirm. Here the person is a function that allows small payments.

import { Client, serve, tool, Worker } from "budao";

const paid = [];
const pay = tool({
  name: "pay",
  description: "Pays an amount.",
  parameters: { type: "object", properties: { amount: { type: "integer" } }, required: ["amount"], additionalProperties: false },
  confirm: true,
  run: ({ amount }) => {
    paid.push(amount);
    return `paid ${amount}`;
  },
});
const approve = ({ metadata }) => {
  console.log("asked:", metadata.tool_name, metadata.tool_args.amount);
  return metadata.tool_args.amount <= 100 ? true : { confirmed: false, feedback: "at most 100" };
};

const server = await serve();
const client = new Client(server.url, { token: server.token });
const worker = new Worker(client, [pay]);
await worker.ready;
const session = await client.create();
for (const amount of [70, 7000]) {
  const answer = await session.run(`call pay with amount=${amount}`, { approve });
  console.log("answer:", answer.content);
}
console.log("paid:", paid);
session.close();
worker.stop();
await server.stop();
