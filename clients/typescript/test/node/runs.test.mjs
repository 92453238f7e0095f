// Runs as a program sees them: answers, approvals, failures, cancellation, and a token that is wrong.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { Client, Fault, TurnCancelled, TurnFailed } from "../../dist/index.js";
import { peer } from "../../../harness/peers.mjs";
import { startServer, TOKEN } from "../../../harness/server.mjs";

const { WebSocket } = peer("ws");
const options = { token: TOKEN, WebSocket, retry: { base: 5, max: 50 } };
const call = '[[step.call]]\ntool = "fs_write"\narguments = { path = "done.txt", content = "done" }\n';
const asking = `order = "history"\n[[step]]\n${call}[[step]]\ntext = "Written."\nrepeat = "forever"\n`;

/** A socket as a browser has it: it hides why a connection was refused. */
class SilentSocket extends WebSocket {
  set onerror(listener) {
    super.onerror = () => listener({});
  }
  get onerror() {
    return super.onerror;
  }
}

for (const [name, socket] of [["ws", WebSocket], ["a socket that hides the status", SilentSocket]]) {
  test(`a wrong token is reported at once: ${name}`, async () => {
    const server = await startServer();
    const client = new Client(server.url, { ...options, token: "another-token", WebSocket: socket, reply: 600_000 });
    await assert.rejects(client.create(), (error) => {
      assert.ok(error instanceof Fault);
      assert.equal(error.code, "ERR_AUTH_002");
      assert.ok(error.advice.length > 0);
      return true;
    });
    await assert.rejects(client.attach("01890000-0000-7000-8000-000000000000"), Fault);
    await server.stop();
  });
}

test("a server that is not there is tried again, and is not taken for a wrong token", async () => {
  const client = new Client("ws://127.0.0.1:1/ws", { ...options, retry: { base: 1, max: 2, tries: 4 } });
  await assert.rejects(client.create(), (error) => error.kind === "connection_lost");
});

test("a function approves a call, and without one the answer is no", async () => {
  const server = await startServer({ script: asking });
  const session = await new Client(server.url, options).create();
  const asked = [];
  const answer = await session.run("go", {
    approve: (question) => {
      asked.push(question.metadata.tool_name);
      return true;
    },
  });
  assert.equal(answer.content, "Written.");
  assert.deepEqual(asked, ["fs_write"]);
  assert.equal(fs.readFileSync(path.join(server.home, "done.txt"), "utf8"), "done");
  session.close();

  fs.rmSync(path.join(server.home, "done.txt"));
  const other = await new Client(server.url, options).create();
  await other.run("go");
  assert.equal(fs.existsSync(path.join(server.home, "done.txt")), false);
  other.close();
  await server.stop();
});

test("a failed run throws its fault, and a cancelled one says so", async () => {
  const failing = await startServer({ script: '[[step]]\nfault = "model_authentication"\nrepeat = "forever"\n' });
  const session = await new Client(failing.url, options).create();
  await assert.rejects(session.run("go"), (error) => error instanceof TurnFailed && error.code === "ERR_AUTH_001");
  session.close();
  await failing.stop();

  const counting = await startServer({ model: "demo" });
  const long = await new Client(counting.url, options).create();
  let cancelled;
  const onEvent = (event) => {
    if (event.event === "agent.partial_answer") cancelled ??= long.cancel();
  };
  await assert.rejects(long.run("count slowly to 60", { onEvent }), TurnCancelled);
  await cancelled;
  long.close();
  await counting.stop();
});
