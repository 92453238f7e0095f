// The released core of CopilotKit, unmodified, which knows only a `runtimeUrl`: a conversation, a reload in the middle of an answer,
// a stop, a tool of the page, an approval, a failure, a thread without messages, and another agent.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { peer } from "../../../harness/peers.mjs";
import { startServer, TOKEN } from "../../../harness/server.mjs";

// Outside of a page, the core asks for no runtime.
globalThis.window ??= globalThis;
const { CopilotKitCore } = peer("@copilotkit/core", "copilotkit");
const headers = { authorization: `Bearer ${TOKEN}` };
const long = Array.from({ length: 60 }, (_, n) => `word${n}`).join(" ");
const slow = `order = "history"\n[[step]]\ntext = "${long}"\npace_ms = 20\nrepeat = "forever"\n`;

/** A page that has just been loaded: its agent on this thread. */
async function load(port, threadId) {
  const errors = [];
  let connected, refused;
  const isConnected = new Promise((resolve, reject) => ([connected, refused] = [resolve, reject]));
  const core = new CopilotKitCore({ runtimeUrl: `http://127.0.0.1:${port}/api/copilotkit`, headers, runtimeTransport: "auto" });
  core.subscribe({
    onError: ({ error }) => (errors.push(error), refused(error)),
    onRuntimeConnectionStatusChanged: ({ status }) => void (status === "connected" && connected()),
  });
  if (core.runtimeConnectionStatus !== "connected") await isConnected;
  const agent = core.getAgent("default");
  agent.threadId = threadId;
  return { core, agent, errors };
}

const say = (agent, content) => agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
const texts = (agent) => agent.messages.map(({ role, content }) => [role, content]);
/** Waits until the answer so far is as long as this. */
const longer = (agent, length) =>
  new Promise((resolve) => {
    const { unsubscribe } = agent.subscribe({
      onTextMessageContentEvent: ({ textMessageBuffer }) => {
        if (textMessageBuffer.length < length) return;
        unsubscribe();
        resolve();
      },
    });
  });

test("a page that knows only a runtimeUrl holds a conversation, and has it again after a reload", async () => {
  const server = await startServer({ script: 'order = "history"\n[[step]]\ntext = "Fine."\nrepeat = "forever"\n' });
  const { core, agent, errors } = await load(server.port, "t1");
  await core.connectAgent({ agent });
  assert.deepEqual(texts(agent), [], "a thread without messages is empty");
  for (const text of ["How are you?", "And now?"]) {
    say(agent, text);
    await core.runAgent({ agent });
  }
  const wanted = [["user", "How are you?"], ["assistant", "Fine."], ["user", "And now?"], ["assistant", "Fine."]];
  assert.deepEqual(texts(agent), wanted);
  const again = await load(server.port, "t1");
  await again.core.connectAgent({ agent: again.agent });
  assert.deepEqual(texts(again.agent), wanted);
  assert.deepEqual([...errors, ...again.errors], []);
  await server.stop();
});

test("a page that is reloaded in the middle of an answer shows the whole answer", async () => {
  const server = await startServer({ script: slow });
  const { core, agent } = await load(server.port, "t2");
  say(agent, "go");
  const begun = longer(agent, 60);
  const running = core.runAgent({ agent });
  await begun;
  const again = await load(server.port, "t2");
  await again.core.connectAgent({ agent: again.agent });
  assert.deepEqual(texts(again.agent), [["user", "go"], ["assistant", long]]);
  assert.deepEqual(again.errors, []);
  await running;
  await server.stop();
});

test("stop ends the turn, and the next message is answered", async () => {
  const server = await startServer({ script: slow });
  const { core, agent } = await load(server.port, "t3");
  say(agent, "go");
  const begun = longer(agent, 30);
  const running = core.runAgent({ agent });
  await begun;
  core.stopAgent({ agent });
  await running;
  const said = agent.messages.at(-1).content;
  assert.ok(said.length > 0 && said.length < long.length, said);
  say(agent, "again");
  await core.runAgent({ agent });
  assert.equal(agent.messages.at(-1).content, long);
  await server.stop();
});

test("a tool of the page runs in the page, and the turn goes on with its result", async () => {
  const script = `order = "history"\n[[step]]\n[[step.call]]\ntool = "pick_color"\narguments = { among = "3" }\n[[step]]\ntext = "You picked."\nrepeat = "forever"\n`;
  const server = await startServer({ script, args: ["--permission", "auto"] });
  const { core, agent, errors } = await load(server.port, "t4");
  const asked = [];
  const parameters = {
    "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }), jsonSchema: { input: () => ({ type: "object", properties: { among: { type: "string" } } }) } },
  };
  core.addTool({ name: "pick_color", description: "Lets the user pick.", parameters, handler: async (args) => (asked.push(args), "red") });
  say(agent, "go");
  await core.runAgent({ agent });
  assert.deepEqual([asked, errors], [[{ among: "3" }], []]);
  assert.equal(agent.messages.at(-1).content, "You picked.");
  await server.stop();
});

test("an approval is an interrupt, and its answer continues the turn", async () => {
  const call = '[[step.call]]\ntool = "fs_write"\narguments = { path = "done.txt", content = "done" }\n';
  const server = await startServer({ script: `order = "history"\n[[step]]\ntext = "I write it."\n${call}[[step]]\ntext = "Written."\nrepeat = "forever"\n` });
  const file = path.join(server.home, "done.txt");
  for (const status of ["cancelled", "resolved"]) {
    const { core, agent, errors } = await load(server.port, `approval-${status}`);
    let interrupts = [];
    agent.subscribe({ onRunFinishedEvent: ({ event }) => void (interrupts = event.outcome?.interrupts ?? []) });
    say(agent, "go");
    await core.runAgent({ agent });
    assert.equal(interrupts.length, 1);
    assert.equal(fs.existsSync(file), false);
    const resume = interrupts.map(({ id }) => ({ interruptId: id, status, ...(status === "resolved" ? { payload: { approved: true } } : {}) }));
    await core.runAgent({ agent, resume });
    assert.deepEqual([interrupts, errors], [[], []]);
    assert.equal(agent.messages.at(-1).content, "Written.");
    assert.equal(fs.existsSync(file), status === "resolved");
  }
  await server.stop();
});

test("a failure is an error of the core, also after a reload, and the next message is answered", async () => {
  const server = await startServer({ script: '[[step]]\nfault = "model_authentication"\n[[step]]\ntext = "Back."\nrepeat = "forever"\n' });
  const { core, agent, errors } = await load(server.port, "t6");
  const failures = [];
  agent.subscribe({ onRunErrorEvent: ({ event }) => void failures.push(event.code) });
  say(agent, "go");
  await core.runAgent({ agent });
  assert.deepEqual(failures, ["ERR_AUTH_001"]);
  assert.ok(errors.length > 0, "the page is told");
  const again = await load(server.port, "t6");
  again.agent.subscribe({ onRunErrorEvent: ({ event }) => void failures.push(event.code) });
  await again.core.connectAgent({ agent: again.agent });
  assert.deepEqual(failures, ["ERR_AUTH_001", "ERR_AUTH_001"]);
  say(again.agent, "again");
  await again.core.runAgent({ agent: again.agent });
  assert.equal(again.agent.messages.at(-1).content, "Back.");
  await server.stop();
});

test("another agent, another user's stop and a body that is none are refused", async () => {
  const server = await startServer();
  const ask = async (path, body = "{}", more = headers) => {
    const response = await fetch(`http://127.0.0.1:${server.port}/api/copilotkit/${path}`, { method: "POST", headers: { "content-type": "application/json", ...more }, body });
    return [response.status, response.headers.get("content-type")];
  };
  const problem = "application/problem+json";
  const input = JSON.stringify({ threadId: "t5", runId: "r1", messages: [] });
  assert.deepEqual(await ask("agent/other/run", input), [422, problem]);
  assert.deepEqual(await ask("agent/other/connect", input), [422, problem]);
  assert.deepEqual(await ask("agent/default/stop/nowhere"), [404, problem]);
  assert.equal((await ask("agent/default/run", "[]"))[1], problem);
  assert.equal((await ask("agent/default/run", "not json"))[1], problem);
  assert.deepEqual((await ask("agent/default/run", input, { authorization: "Bearer wrong" }))[0], 401);
  assert.deepEqual(await ask("agent/default/connect", input), [200, "text/event-stream"]);
  const sessions = await fetch(`http://127.0.0.1:${server.port}/v1/sessions`, { headers });
  assert.deepEqual((await sessions.json()).sessions, [], "connect creates no session");
  await server.stop();
});
