// The client against the real server, over lines that break.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { Client, Rejected } from "../../dist/index.js";
import { peer } from "../../../harness/peers.mjs";
import { startProxy } from "../../../harness/proxy.mjs";
import { startServer, TOKEN } from "../../../harness/server.mjs";

const { WebSocket } = peer("ws");

const step = '[[step]]\ndelay_ms = 5\n[[step.call]]\ntool = "fs_glob"\narguments = { pattern = "*.toml" }\n';
const script = `order = "history"\n${step.repeat(30)}[[step]]\ntext = "All done."\nrepeat = "forever"\n`;
const options = { token: TOKEN, WebSocket, retry: { base: 5, max: 50 } };

let server;
before(async () => {
  server = await startServer({ script });
});
after(() => server.stop());

/** Everything up to the final answer. */
async function run(session, onEvent = () => {}) {
  const heard = [];
  for await (const event of session.events()) {
    heard.push(event);
    onEvent(event, heard);
    if (event.event === "agent.final_answer") return heard;
  }
  throw new Error("the events ended before the answer");
}

const ids = (events) => events.filter((event) => event.seq !== undefined).map((event) => event.event_id);

/** What a fresh client gets of the same session. */
async function history(id) {
  const session = await new Client(server.url, options).attach(id);
  const heard = await run(session);
  session.close();
  return ids(heard);
}

test("ten lines are enough", async () => {
  const client = new Client(server.url, options);
  const session = await client.create({ language: "en" });
  await session.send("go");
  for await (const event of session.events()) {
    if (event.event === "agent.final_answer") break;
  }
  assert.equal(session.cursor.seq > 0, true);
  session.close();
});

test("cuts after every few events lose nothing and repeat nothing", async () => {
  const proxy = await startProxy(server.port);
  const session = await new Client(`ws://127.0.0.1:${proxy.port}/ws`, options).create();
  await session.send("go");
  let cuts = 0;
  const heard = await run(session, (event, all) => {
    if (event.seq !== undefined && ids(all).length % 7 === 0) {
      cuts += 1;
      proxy.cutAll();
    }
  });
  assert.ok(cuts >= 5, `${cuts} cuts`);
  const lost = heard.filter((event) => event.fault?.kind === "connection_lost");
  assert.ok(lost.length >= 1 && lost.every((event) => event.event === "error.connection_lost"));
  assert.deepEqual(ids(heard), await history(session.id));
  session.close();
  proxy.stop();
});

test("connections cut at growing numbers of bytes lose nothing and repeat nothing", async () => {
  const proxy = await startProxy(server.port, (n) => ({ cutAfter: 100 + 377 * n }));
  const session = await new Client(`ws://127.0.0.1:${proxy.port}/ws`, options).create();
  await session.send("go");
  const heard = await run(session);
  assert.ok(proxy.accepted() > 3, `${proxy.accepted()} connections`);
  assert.deepEqual(ids(heard), await history(session.id));
  session.close();
  proxy.stop();
});

test("a session is taken up where its cursor says", async () => {
  const session = await new Client(server.url, options).create();
  await session.send("go");
  const heard = await run(session);
  const middle = heard.filter((event) => event.seq !== undefined)[20];
  const again = await new Client(server.url, options).attach(session.id, { epoch: middle.epoch, seq: middle.seq });
  assert.deepEqual(ids(await run(again)), ids(heard).slice(21));
  again.close();
  session.close();
});

test("a command under one id happens once", async () => {
  const session = await new Client(server.url, options).create();
  await Promise.all([
    session.ask("user.message", { content: "go" }, "once"),
    run(session),
  ]);
  const again = await session.ask("user.message", { content: "go" }, "once");
  assert.equal(again.metadata.status, "accepted");
  session.close();
});

test("a message that waits can be taken back, and says so to all", async () => {
  const session = await new Client(server.url, options).create();
  await session.send("go");
  const waiting = await session.send("and then this");
  const { command_id: message } = waiting.metadata;
  const answer = await session.withdraw(message);
  assert.equal(answer.metadata.status, "accepted");
  const heard = await run(session);
  const told = heard.filter((event) => event.metadata?.action === "message_withdrawn");
  assert.deepEqual(told.map((event) => event.metadata.message), [message]);
  await assert.rejects(session.withdraw("c-never-sent"), Rejected);
  session.close();
});

test("a refusal names the field and does not end the session", async () => {
  const session = await new Client(server.url, options).create();
  await assert.rejects(session.ask("user.message", { content: "  " }), (error) => {
    assert.ok(error instanceof Rejected);
    assert.equal(error.event.metadata.field, "content");
    return true;
  });
  await session.send("go");
  await run(session);
  session.close();
});

test("an unknown session is refused at once", async () => {
  const client = new Client(server.url, options);
  await assert.rejects(client.attach("01890000-0000-7000-8000-000000000000"), Rejected);
});

test("kill -9 of the server in the middle of a run, and the run is heard to its end", async () => {
  let victim = await startServer({ script });
  const { home } = victim;
  const ports = { now: victim.port };
  const proxy = await startProxy(() => ports.now);
  const session = await new Client(`ws://127.0.0.1:${proxy.port}/ws`, options).create();
  await session.send("go");
  let restarted;
  const heard = await run(session, (event, all) => {
    if (restarted === undefined && ids(all).length === 25) {
      restarted = (async () => {
        await victim.crash();
        victim = await startServer({ script, home });
        ports.now = victim.port;
      })();
    }
  });
  await restarted;
  assert.equal(heard.at(-1).content, "All done.");
  const numbers = heard.filter((event) => event.seq !== undefined).map((event) => event.seq);
  assert.deepEqual(numbers, [...new Set(numbers)].sort((a, b) => a - b));
  session.close();
  proxy.stop();
  await victim.stop();
});

test("a question is asked again after kill -9, and its answer counts", async () => {
  const call = '[[step.call]]\ntool = "fs_write"\narguments = { path = "done.txt", content = "done" }\n';
  const asking = `order = "history"\n[[step]]\n${call}[[step]]\ntext = "Written."\nrepeat = "forever"\n`;
  let victim = await startServer({ script: asking });
  const { home } = victim;
  const ports = { now: victim.port };
  const proxy = await startProxy(() => ports.now);
  const session = await new Client(`ws://127.0.0.1:${proxy.port}/ws`, options).create();
  await session.send("go");
  const asked = [];
  for await (const event of session.events()) {
    if (event.event === "agent.final_answer") break;
    if (event.event !== "agent.user_confirm") continue;
    asked.push(event.step_id);
    if (asked.length === 1) {
      await victim.crash();
      victim = await startServer({ script: asking, home });
      ports.now = victim.port;
    } else {
      await session.answer(event.step_id, { confirmed: true });
    }
  }
  assert.equal(asked[0], asked[1]);
  assert.equal(fs.readFileSync(path.join(home, "done.txt"), "utf8"), "done");
  session.close();
  proxy.stop();
  await victim.stop();
});
