// The released AG-UI client, unmodified, against the real server: conversations, tools, approvals, failures, cuts and kills.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { resumable } from "../../dist/front_end.js";
import { peer } from "../../../harness/peers.mjs";
import { startProxy } from "../../../harness/proxy.mjs";
import { startServer, TOKEN } from "../../../harness/server.mjs";

const { HttpAgent } = peer("@ag-ui/client", "front-ends");
const headers = { authorization: `Bearer ${TOKEN}` };
const call = '[[step.call]]\ntool = "fs_write"\narguments = { path = "done.txt", content = "done" }\nid = "c1"\n';
const asking = `order = "history"\n[[step]]\ntext = "I write it."\n${call}[[step]]\ntext = "Written."\nrepeat = "forever"\n`;
const long = (words) => Array.from({ length: words }, (_, n) => `word${n}`).join(" ");

const agentAt = (port, options = {}) => new HttpAgent({ url: `http://127.0.0.1:${port}/ag-ui`, headers, threadId: "thread-1", ...options });
const say = (agent, content, id = `u-${agent.messages.length}`) => agent.addMessage({ id, role: "user", content });

/** Runs the agent; returns the events, the error of the run and the messages. */
async function run(agent, parameters = {}) {
  const events = [];
  let error;
  const subscriber = { onEvent: ({ event }) => void events.push(event), onRunErrorEvent: ({ event }) => void (error = event) };
  const result = await agent.runAgent(parameters, subscriber);
  return { events, error, result, types: events.map((event) => event.type) };
}

const texts = (agent) => agent.messages.map((message) => [message.role, typeof message.content === "string" ? message.content : ""]);
const post = (port, body, more = {}) =>
  fetch(`http://127.0.0.1:${port}/ag-ui`, { method: "POST", headers: { ...headers, "content-type": "application/json", ...more }, body: JSON.stringify(body) });
const input = (messages, more = {}) => ({ threadId: "thread-1", runId: "run-1", messages, tools: [], context: [], state: {}, forwardedProps: {}, ...more });
const user = (content, id = "u1") => ({ id, role: "user", content });

/** The events of a stream, with their ids. */
async function eventsOf(response) {
  const frames = (await response.text()).split("\n\n").filter((frame) => frame.includes("data: "));
  return frames.map((frame) => ({ id: /^id: (.*)$/m.exec(frame)?.[1], event: JSON.parse(/^data: (.*)$/m.exec(frame)[1]) }));
}

test("HttpAgent holds a conversation with reasoning and a tool", async () => {
  const script = `order = "history"\n[[step]]\nthink = "Let me look."\ntext = "I look."\n[[step.call]]\ntool = "fs_glob"\narguments = { pattern = "*" }\n[[step]]\ntext = "There is a journal."\nrepeat = "forever"\n`;
  const server = await startServer({ script });
  const agent = agentAt(server.port);
  say(agent, "What is here?");
  const first = await run(agent);
  assert.equal(first.types[0], "RUN_STARTED");
  assert.equal(first.types.at(-1), "RUN_FINISHED");
  for (const wanted of ["REASONING_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_RESULT", "STEP_STARTED"]) {
    assert.ok(first.types.includes(wanted), wanted);
  }
  assert.equal(first.events.at(-1).outcome.type, "success");
  assert.deepEqual(texts(agent).map(([role]) => role), ["user", "reasoning", "assistant", "tool", "assistant"]);
  assert.equal(texts(agent).at(-1)[1], "There is a journal.");
  say(agent, "Again?");
  await run(agent);
  assert.equal(agent.messages.at(-1).content, "There is a journal.");
  assert.equal(agent.messages.filter((message) => message.role === "user").length, 2);
  await server.stop();
});

test("an approval is an interrupt, and its answer continues the turn", async () => {
  const server = await startServer({ script: asking });
  const agent = agentAt(server.port);
  say(agent, "go");
  const { events } = await run(agent);
  const { outcome } = events.at(-1);
  assert.equal(outcome.type, "interrupt");
  assert.equal(outcome.interrupts[0].toolCallId, agent.messages[1].toolCalls[0].id);
  assert.equal(outcome.interrupts[0].metadata.tool, "fs_write");
  assert.equal(fs.existsSync(path.join(server.home, "done.txt")), false);
  const resume = outcome.interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
  const second = await run(agent, { resume });
  assert.equal(second.events.at(-1).outcome.type, "success");
  assert.equal(fs.readFileSync(path.join(server.home, "done.txt"), "utf8"), "done");
  assert.deepEqual(texts(agent), [["user", "go"], ["assistant", "I write it."], ["tool", agent.messages[2].content], ["assistant", "Written."]]);

  const other = agentAt(server.port, { threadId: "thread-2" });
  fs.rmSync(path.join(server.home, "done.txt"));
  say(other, "go");
  const asked = await run(other);
  const denied = await run(other, { resume: [{ interruptId: asked.events.at(-1).outcome.interrupts[0].id, status: "cancelled" }] });
  assert.equal(denied.events.at(-1).type, "RUN_FINISHED");
  assert.equal(fs.existsSync(path.join(server.home, "done.txt")), false);
  await server.stop();
});

test("a front end runs its own tool, and the turn goes on with the result", async () => {
  const script = `order = "history"\n[[step]]\n[[step.call]]\ntool = "pick_color"\narguments = { among = "3" }\n[[step]]\ntext = "You picked."\nrepeat = "forever"\n`;
  const server = await startServer({ script, args: ["--permission", "auto"] });
  const agent = agentAt(server.port);
  const tools = [{ name: "pick_color", description: "Lets the user pick.", parameters: { type: "object", properties: { among: { type: "string" } } } }];
  say(agent, "go");
  const { events } = await run(agent, { tools });
  const { outcome } = events.at(-1);
  assert.deepEqual([outcome.type, outcome.pendingToolCallIds.length], ["success", 1]);
  agent.addMessage({ id: "r1", role: "tool", toolCallId: outcome.pendingToolCallIds[0], content: '{"color":"red"}' });
  const second = await run(agent, { tools });
  assert.equal(second.events.at(-1).type, "RUN_FINISHED");
  assert.equal(agent.messages.at(-1).content, "You picked.");
  const results = (messages) => messages.filter(({ role }) => role === "tool").map(({ id, content }) => [id, content]);
  assert.deepEqual(results(agent.messages), [["r1", '{"color":"red"}']], "the result is there once, as the front end's own message");
  say(agent, "and?");
  await run(agent, { tools });
  const Agent = resumable(HttpAgent);
  const reloaded = new Agent({ url: `http://127.0.0.1:${server.port}/ag-ui`, headers, threadId: "thread-1" });
  await reloaded.connectAgent();
  assert.equal(results(reloaded.messages)[0][0], "r1", "after a reload it has the same id");

  const hasty = agentAt(server.port, { threadId: "thread-hasty" });
  say(hasty, "go");
  await run(hasty, { tools });
  say(hasty, "never mind");
  const moved = await run(hasty, { tools });
  assert.equal(moved.events.at(-1).type, "RUN_FINISHED");
  assert.equal(hasty.messages.at(-1).content, "You picked.");
  await server.stop();
});

test("a failed turn is a RUN_ERROR with its code, and the thread stays usable", async () => {
  const server = await startServer({ script: '[[step]]\nfault = "model_authentication"\n[[step]]\ntext = "Back."\nrepeat = "forever"\n' });
  const agent = agentAt(server.port);
  say(agent, "go");
  const { error, types } = await run(agent);
  assert.equal(error.code, "ERR_AUTH_001");
  assert.ok(error.message.length > 10);
  assert.equal(types.at(-1), "RUN_ERROR");
  say(agent, "again");
  await run(agent);
  assert.equal(agent.messages.at(-1).content, "Back.");
  await server.stop();
});

test("an abandoned answer disappears from the messages", async () => {
  const server = await startServer({ script: '[[step]]\ntext = "Half of an"\nend = "cut"\n[[step]]\ntext = "A whole answer."\nrepeat = "forever"\n' });
  const agent = agentAt(server.port);
  say(agent, "go");
  const { types } = await run(agent);
  assert.ok(types.includes("MESSAGES_SNAPSHOT"), types.join(" "));
  assert.deepEqual(texts(agent), [["user", "go"], ["assistant", "A whole answer."]]);
  await server.stop();
});

test("bad input gets an answer, and the thread stays usable", async () => {
  const server = await startServer({ script: asking });
  const { port } = server;
  const refused = async (response, status, pattern) => {
    const text = await response.text();
    assert.equal(response.status, status, text);
    assert.match(text, pattern);
  };
  const asked = await eventsOf(await post(port, input([user("go")])));
  const again = await eventsOf(await post(port, input([user("go")])));
  assert.deepEqual(again.at(-1), asked.at(-1), "the same run again joins it, also while it waits for an answer");
  await refused(await post(port, input([user("something else")])), 409, /ERR_/);
  await refused(await post(port, input([user("go"), { id: "mine", role: "assistant", content: "I said this" }, user("and?", "u2")], { runId: "run-2" })), 422, /messages\[1\]/);
  await refused(await post(port, input([user("go"), { id: "x", role: "tool", toolCallId: "never", content: "1" }], { runId: "run-3" })), 422, /toolCallId/);
  await refused(await post(port, input([user("go"), { id: "turn-1.1", role: "assistant", content: "" }, user("more", "u2")], { runId: "run-4" })), 422, /resume/);
  await refused(await post(port, input([], { runId: "run-5", resume: [{ interruptId: "ask_nothing", status: "resolved", payload: { approved: true } }] })), 409, /ERR_/);
  await refused(await post(port, { threadId: "thread-1" }), 400, /RunAgentInput/);
  await refused(await fetch(`http://127.0.0.1:${port}/ag-ui`, { method: "POST", body: "{}" }), 401, /ERR_AUTH/);
  const get = (address) => fetch(`http://127.0.0.1:${port}/ag-ui/${address}`, { headers });
  await refused(await get("nobody"), 404, /ERR_SESS/);
  const joined = await eventsOf(await get("thread-1"));
  assert.deepEqual(joined.map(({ event }) => event.type), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
  assert.equal(joined[2].event.outcome.type, "interrupt");
  const [, , { id }] = joined;
  const beyond = id.replace(/\.(\d+)$/, (_, seq) => `.${Number(seq) + 1000}`);
  await refused(await get(`thread-1?after=${beyond}`), 409, /ERR_CONN_004/);
  await refused(await get("thread-1?after=nonsense"), 422, /Last-Event-ID/);
  const [question] = joined[2].event.outcome.interrupts;
  const after = await eventsOf(await post(port, input([], { runId: "run-6", resume: [{ interruptId: question.id, status: "resolved", payload: { approved: true } }] })));
  assert.equal(after.at(-1).event.outcome.type, "success");
  assert.equal(after[0].event.runId, "run-6");
  await server.stop();
});

test("a run that is sent again joins it: nothing happens twice, and the text is whole", async () => {
  const server = await startServer({ script: `[[step]]\ntext = "${long(40)}"\npace_ms = 5\nrepeat = "forever"\n` });
  const body = input([user("go")]);
  const [one, two] = await Promise.all([post(server.port, body), post(server.port, body)].map(async (response) => eventsOf(await response)));
  for (const events of [one, two]) {
    const text = events.filter(({ event }) => event.type === "TEXT_MESSAGE_CONTENT").map(({ event }) => event.delta).join("");
    const snapshot = events.find(({ event }) => event.type === "MESSAGES_SNAPSHOT")?.event.messages.at(-1);
    assert.equal((snapshot?.role === "assistant" ? (snapshot.content ?? "") : "") + text, long(40));
  }
  const again = await eventsOf(await post(server.port, body));
  assert.equal(again.at(-1).event.type, "RUN_FINISHED");
  assert.equal(again.filter(({ event }) => event.type === "RUN_STARTED").length, 1);
  await server.stop();
});

test("a stream continues after any of its events, without loss or repetition", async () => {
  const server = await startServer({ script: asking.replace("[[step]]", '[[step]]\nthink = "First I think."') });
  const whole = await eventsOf(await post(server.port, input([user("go")])));
  assert.ok(whole.length > 8);
  for (const [index, { id }] of whole.entries()) {
    if (index === whole.length - 1) break;
    const rest = await eventsOf(await fetch(`http://127.0.0.1:${server.port}/ag-ui/thread-1?run=run-1`, { headers: { ...headers, "last-event-id": id } }));
    assert.deepEqual(rest, whole.slice(index + 1), `after ${index}`);
  }
  await server.stop();
});

test("lines that are cut at growing numbers of bytes lose and repeat no event", async () => {
  const server = await startServer({ script: `[[step]]\nthink = "I think."\ntext = "${long(60)}"\npace_ms = 2\nrepeat = "forever"\n` });
  const proxy = await startProxy(server.port, (n) => ({ cutAfter: 900 + 353 * n }));
  const Agent = resumable(HttpAgent, { retry: { base: 5, max: 20 } });
  const agent = new Agent({ url: `http://127.0.0.1:${proxy.port}/ag-ui`, headers, threadId: "cut" });
  say(agent, "go");
  const { types } = await run(agent);
  assert.equal(types.at(-1), "RUN_FINISHED");
  assert.ok(proxy.accepted() > 3, `${proxy.accepted()} connections`);
  assert.equal(types.filter((type) => type === "RUN_STARTED").length, 1);
  assert.deepEqual(texts(agent), [["user", "go"], ["reasoning", "I think."], ["assistant", long(60)]]);
  const reloaded = new Agent({ url: `http://127.0.0.1:${proxy.port}/ag-ui`, headers, threadId: "cut" });
  await reloaded.connectAgent();
  assert.deepEqual(texts(reloaded), texts(agent));
  assert.deepEqual(reloaded.messages.map(({ id }) => id), agent.messages.map(({ id }) => id));
  proxy.stop();
  await server.stop();
});

test("kill -9 of the server in the middle of an answer: the stream goes on", async () => {
  const script = `order = "history"\n[[step]]\ntext = "${long(80)}"\npace_ms = 15\nrepeat = "forever"\n`;
  let victim = await startServer({ script });
  const { home } = victim;
  const proxy = await startProxy(() => victim.port);
  const Agent = resumable(HttpAgent, { retry: { base: 20, max: 200, tries: 400 } });
  const agent = new Agent({ url: `http://127.0.0.1:${proxy.port}/ag-ui`, headers, threadId: "killed" });
  say(agent, "go");
  let killed;
  const restart = async () => {
    await victim.crash();
    victim = await startServer({ script, home });
  };
  const seen = [];
  await agent.runAgent({}, {
    onEvent: ({ event }) => {
      seen.push(event.type);
      if (event.type === "TEXT_MESSAGE_CONTENT") killed ??= restart();
    },
  });
  await killed;
  assert.equal(seen.at(-1), "RUN_FINISHED");
  assert.deepEqual(texts(agent), [["user", "go"], ["assistant", long(80)]]);
  proxy.stop();
  await victim.stop();
});

test("a cancelled run ends as cancelled", async () => {
  const server = await startServer({ script: `[[step]]\ntext = "${long(400)}"\npace_ms = 20\nrepeat = "forever"\n` });
  const agent = agentAt(server.port);
  say(agent, "go");
  let cancelled;
  let last;
  await agent.runAgent({}, {
    onEvent: ({ event }) => {
      last = event;
      if (event.type === "TEXT_MESSAGE_CONTENT") cancelled ??= fetch(`http://127.0.0.1:${server.port}/ag-ui/thread-1/cancel`, { method: "POST", headers });
    },
  });
  assert.equal((await cancelled).status, 202);
  assert.equal(last.outcome.type, "cancelled");
  await server.stop();
});
