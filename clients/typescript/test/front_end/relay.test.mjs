// The released clients, unmodified, against a relayed AG-UI agent: what the agent sends reaches them as from the agent itself.

import assert from "node:assert/strict";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { resumable } from "../../dist/front_end.js";
import { interrupt, message, reasoning, startAgent, toolCall } from "../../../harness/agent.mjs";
import { peer, peerFile } from "../../../harness/peers.mjs";
import { startProxy } from "../../../harness/proxy.mjs";
import { startServer, TOKEN } from "../../../harness/server.mjs";

const { HttpAgent } = peer("@ag-ui/client", "front-ends");
const load = (name) => import(pathToFileURL(peerFile(name, "front-ends")));
const { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } = await load("ai");
const { Chat } = await load("@ai-sdk/react");
const headers = { authorization: `Bearer ${TOKEN}` };

/** A server with a relayed agent that plays `play`. */
async function startRelay(play, options = {}) {
  const agent = await startAgent(play);
  const server = await startServer({ args: ["--engine", `agui:${agent.url}`], ...options });
  const stop = async () => {
    await server.stop();
    agent.stop();
  };
  return { agent, server, url: `http://127.0.0.1:${server.port}/ag-ui`, stop };
}

const say = (agent, content) => agent.addMessage({ id: `u-${agent.messages.length}`, role: "user", content });

/** Runs the agent; returns the events and the error of the run. */
async function run(agent, parameters = {}) {
  const events = [];
  let error;
  await agent.runAgent(parameters, { onEvent: ({ event }) => void events.push(event), onRunErrorEvent: ({ event }) => void (error = event) });
  return { events, error, types: events.map(({ type }) => type) };
}

const shown = (agent) => agent.messages.map(({ role, content, activityType }) => [role, activityType ?? content ?? ""]);

const work = (n) => [
  { type: "STEP_STARTED", stepName: "search" },
  { type: "STATE_SNAPSHOT", snapshot: { found: 0 } },
  { type: "ACTIVITY_SNAPSHOT", messageId: `activity-${n}`, activityType: "search", content: { pages: 0 } },
  ...Array.from({ length: 8 }, (_, page) => [
    { type: "STATE_DELTA", delta: [{ op: "replace", path: "/found", value: page + 1 }] },
    { type: "ACTIVITY_DELTA", messageId: `activity-${n}`, activityType: "search", patch: [{ op: "replace", path: "/pages", value: page + 1 }] },
    { type: "CUSTOM", name: "page", value: { page } },
    5,
  ]).flat(),
  { type: "STEP_FINISHED", stepName: "search" },
  ...reasoning(`thought-${n}`, "I think."),
  ...message(`answer-${n}`, "Done."),
];

test("the state, the activities, the steps and the custom events of a relayed agent reach HttpAgent as from the agent itself", async () => {
  const relay = await startRelay((_, n) => work(n));
  const of = async (url, options) => {
    const agent = new HttpAgent({ url, threadId: "thread-1", ...options });
    say(agent, "go");
    const { events } = await run(agent);
    const kept = events.filter(({ type, stepName }) => /^(STATE|ACTIVITY|CUSTOM|STEP)/.test(type) && !stepName?.startsWith("step-"));
    return { agent, kept: kept.map(({ metadata, replace, ...event }) => event) };
  };
  const straight = await of(relay.agent.url.replace("/agent", "/agent"));
  const relayed = await of(relay.url, { headers });
  const renamed = JSON.parse(JSON.stringify(straight.kept).replaceAll("activity-0", "activity-1"));
  assert.deepEqual(relayed.kept, renamed);
  assert.deepEqual(relayed.agent.state, straight.agent.state);
  assert.deepEqual(shown(relayed.agent), shown(straight.agent));
  assert.deepEqual(relayed.agent.state, { found: 8 });

  const Agent = resumable(HttpAgent);
  const reloaded = new Agent({ url: relay.url, headers, threadId: "thread-1" });
  await reloaded.connectAgent();
  assert.deepEqual(reloaded.state, { found: 8 }, "a client that joins later has the state");
  assert.deepEqual(shown(reloaded), shown(relayed.agent));
  await relay.stop();
});

test("lines that are cut at growing numbers of bytes leave the state and the activities of the agent whole", async () => {
  const relay = await startRelay((_, n) => work(n));
  const proxy = await startProxy(relay.server.port, (n) => ({ cutAfter: 700 + 331 * n }));
  const Agent = resumable(HttpAgent, { retry: { base: 5, max: 20, tries: 400 } });
  const agent = new Agent({ url: `http://127.0.0.1:${proxy.port}/ag-ui`, headers, threadId: "cut" });
  say(agent, "go");
  const { types } = await run(agent);
  assert.equal(types.at(-1), "RUN_FINISHED");
  assert.ok(proxy.accepted() > 3, `${proxy.accepted()} connections`);
  assert.equal(types.filter((type) => type === "CUSTOM").length, 8, "none lost and none repeated");
  assert.deepEqual(agent.state, { found: 8 });
  assert.deepEqual(agent.messages.find(({ role }) => role === "activity").content, { pages: 8 });
  proxy.stop();
  await relay.stop();
});

test("the state, the context and the forwarded properties of a front end reach the relayed agent, and other fields do not", async () => {
  const relay = await startRelay((_, n) => message(`m-${n}`, "Yes."));
  const agent = new HttpAgent({ url: relay.url, headers, threadId: "given", initialState: { draft: "a" } });
  say(agent, "one");
  const context = [{ description: "page", value: "home" }];
  await run(agent, { context, forwardedProps: { theme: "dark" } });
  say(agent, "two");
  await run(agent);
  const [first, second] = relay.agent.asked;
  assert.deepEqual([first.state, first.context, first.forwardedProps], [{ draft: "a" }, context, { theme: "dark" }]);
  assert.deepEqual([second.state, second.context, second.forwardedProps], [{ draft: "a" }, [], {}]);

  const large = { url: relay.url, headers, threadId: "large", initialState: { draft: "x".repeat(2 * 1024 * 1024) } };
  const refused = new HttpAgent(large);
  say(refused, "one");
  await assert.rejects(run(refused), /429.*ERR_RES_004/s);
  assert.equal(relay.agent.asked.length, 2, "nothing was posted");
  refused.setState({});
  await run(refused);
  assert.equal(refused.messages.at(-1).content, "Yes.");
  await relay.stop();
});

const approval = (body) => {
  const answer = body.resume?.[0];
  if (answer === undefined) return [...reasoning("t1", "I should pay."), ...message("m1", "I pay."), ...toolCall("c1", "pay", { claim: 7 }), interrupt("i1", "c1", "Pay?")];
  const approved = answer.payload.approved === true;
  return [...(approved ? [{ type: "TOOL_CALL_RESULT", messageId: "r1", toolCallId: "c1", content: "paid" }] : []), ...message("m2", approved ? "Paid." : "Not paid.")];
};

test("a relayed agent reasons, calls tools and asks for an approval, for HttpAgent", async () => {
  const relay = await startRelay((body) => approval(body));
  for (const approved of [true, false]) {
    const agent = new HttpAgent({ url: relay.url, headers, threadId: `approval-${approved}` });
    say(agent, "go");
    const first = await run(agent);
    const { outcome } = first.events.at(-1);
    assert.equal(outcome.type, "interrupt");
    assert.equal(outcome.interrupts[0].message.length > 0, true);
    const call = agent.messages.find(({ toolCalls }) => toolCalls !== undefined).toolCalls[0];
    assert.deepEqual([call.function.name, outcome.interrupts[0].toolCallId], ["pay", call.id]);
    const second = await run(agent, { resume: [{ interruptId: outcome.interrupts[0].id, status: "resolved", payload: { approved } }] });
    assert.equal(second.events.at(-1).type, "RUN_FINISHED");
    assert.equal(agent.messages.at(-1).content, approved ? "Paid." : "Not paid.");
    assert.equal(agent.messages.filter(({ role }) => role === "reasoning").length, 1);
    const results = agent.messages.filter(({ role }) => role === "tool");
    assert.equal(results.length, 1, "one result for the call");
    if (approved) assert.equal(results[0].content, "paid");
  }
  await relay.stop();
});

test("a relayed agent that fails or is cut is a RUN_ERROR with its code, and the thread stays usable", async () => {
  const relay = await startRelay((_, n) => [[...message("m0", "Half"), { type: "RUN_ERROR", message: "out of order", code: "boom" }], [...message("m1", "Half"), null], message("m2", "Whole.")][n]);
  const agent = new HttpAgent({ url: relay.url, headers, threadId: "failing" });
  for (const code of ["ERR_CONN_013", "ERR_CONN_010"]) {
    say(agent, "go");
    const { error, types } = await run(agent);
    assert.deepEqual([error.code, types.at(-1)], [code, "RUN_ERROR"]);
    assert.equal(agent.messages.at(-1).content, "Half", "what came is kept");
  }
  say(agent, "go");
  await run(agent);
  assert.equal(agent.messages.at(-1).content, "Whole.");
  await relay.stop();
});

test("a relayed agent reasons, calls tools and asks for an approval, for useChat", async () => {
  const relay = await startRelay((body) => approval(body));
  for (const approved of [true, false]) {
    const transport = new DefaultChatTransport({ api: `http://127.0.0.1:${relay.server.port}/api/chat`, headers });
    const chat = new Chat({ id: `approval-${approved}`, transport, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
    await chat.sendMessage({ text: "go" });
    const part = () => chat.messages.at(-1).parts.find(({ type }) => type === "dynamic-tool");
    const text = () => chat.messages.at(-1).parts.filter(({ type }) => type === "text").map((it) => it.text).join(" ");
    assert.deepEqual([part().toolName, part().state], ["pay", "approval-requested"]);
    assert.ok(chat.messages.at(-1).parts.some(({ type }) => type === "reasoning"));
    await chat.addToolApprovalResponse({ id: part().approval.id, approved });
    for (let n = 0; n < 12_000 && !/aid\./.test(text()); n++) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.equal(text(), approved ? "I pay. Paid." : "I pay. Not paid.");
    assert.equal(part().state, approved ? "output-available" : "output-denied");
    assert.equal(chat.error, undefined);
  }
  await relay.stop();
});
