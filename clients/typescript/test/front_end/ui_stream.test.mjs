// The released AI SDK, unmodified, against the real server: useChat's chat class with its own transports.

import assert from "node:assert/strict";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { test } from "node:test";
import { resumingFetch } from "../../dist/front_end.js";
import { peer, peerFile } from "../../../harness/peers.mjs";
import { startProxy } from "../../../harness/proxy.mjs";
import { startServer, TOKEN } from "../../../harness/server.mjs";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(peerFile(name, "front-ends")));
const { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } = await load("ai");
const { Chat } = await load("@ai-sdk/react");
const { WorkflowChatTransport } = await load("@ai-sdk/workflow/client");
const headers = { authorization: `Bearer ${TOKEN}` };
const call = '[[step.call]]\ntool = "fs_write"\narguments = { path = "done.txt", content = "done" }\n';
const asking = `order = "history"\n[[step]]\ntext = "I write it."\n${call}[[step]]\ntext = "Written."\nrepeat = "forever"\n`;
const long = (words) => Array.from({ length: words }, (_, n) => `word${n}`).join(" ");

const transportAt = (port, options = {}) => new DefaultChatTransport({ api: `http://127.0.0.1:${port}/api/chat`, headers, ...options });
const chatAt = (port, options = {}) => new Chat({ id: "chat-1", transport: transportAt(port, options.transport), ...options.chat });
const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
const toolOf = (chat) => chat.messages.at(-1).parts.find((part) => part.type === "dynamic-tool");

const post = (port, body, query = "") =>
  fetch(`http://127.0.0.1:${port}/api/chat${query}`, { method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body) });
const user = (text, id = "u1") => ({ id, role: "user", parts: [{ type: "text", text }] });
const chunksOf = (text) => text.split("\n\n").map((frame) => /^data: (.*)$/m.exec(frame)?.[1]).filter((data) => data !== undefined);

/** Waits until a condition holds. */
async function until(what) {
  for (let n = 0; n < 12_000 && !what(); n++) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.ok(what(), String(what));
}

test("useChat's chat holds a conversation with reasoning and a tool", async () => {
  const script = `order = "history"\n[[step]]\nthink = "Let me look."\ntext = "I look."\n[[step.call]]\ntool = "fs_glob"\narguments = { pattern = "*" }\n[[step]]\ntext = "There is a journal."\nrepeat = "forever"\n`;
  const server = await startServer({ script });
  const chat = chatAt(server.port);
  await chat.sendMessage({ text: "What is here?" });
  assert.equal(chat.error, undefined);
  assert.equal(chat.status, "ready");
  const kinds = chat.messages.at(-1).parts.map((part) => part.type);
  assert.deepEqual(kinds, ["step-start", "reasoning", "text", "dynamic-tool", "step-start", "text"]);
  assert.equal(toolOf(chat).state, "output-available");
  await chat.sendMessage({ text: "Again?" });
  assert.equal(textOf(chat.messages.at(-1)), "There is a journal.");
  assert.equal(chat.messages.length, 4);
  await server.stop();
});

test("an approval continues the same message, and a denial is shown as one", async () => {
  const server = await startServer({ script: asking });
  for (const [id, approved] of [["yes", true], ["no", false]]) {
    fs.rmSync(path.join(server.home, "done.txt"), { force: true });
    const chat = new Chat({ id, transport: transportAt(server.port), sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
    await chat.sendMessage({ text: "go" });
    assert.equal(toolOf(chat).state, "approval-requested");
    await chat.addToolApprovalResponse({ id: toolOf(chat).approval.id, approved });
    await until(() => chat.status === "ready" && textOf(chat.messages.at(-1)).includes("Written."));
    assert.equal(chat.error, undefined);
    assert.equal(chat.messages.length, 2);
    assert.equal(toolOf(chat).state, approved ? "output-available" : "output-denied");
    assert.equal(fs.existsSync(path.join(server.home, "done.txt")), approved);
  }
  await server.stop();
});

test("a page runs its own tool, and the turn goes on with the result", async () => {
  const script = `order = "history"\n[[step]]\n[[step.call]]\ntool = "pick_color"\narguments = { among = "3" }\n[[step]]\ntext = "You picked."\nrepeat = "forever"\n`;
  const server = await startServer({ script, args: ["--permission", "auto"] });
  const tools = [{ name: "pick_color", description: "Lets the user pick.", parameters: { type: "object" } }];
  const chat = new Chat({
    id: "own-tool",
    transport: transportAt(server.port, { body: { tools } }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall: ({ toolCall }) => void chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: { color: "red" } }),
  });
  await chat.sendMessage({ text: "go" });
  await until(() => chat.status === "ready" && textOf(chat.messages.at(-1)).includes("You picked."));
  assert.equal(chat.error, undefined);
  assert.deepEqual(toolOf(chat).output, { color: "red" });
  await server.stop();
});

test("a failure is the chat's error, and regenerate continues the failed turn", async () => {
  const server = await startServer({ script: '[[step]]\nfault = "model_authentication"\n[[step]]\ntext = "Back."\nrepeat = "forever"\n' });
  const chat = chatAt(server.port);
  await chat.sendMessage({ text: "go" });
  assert.equal(chat.status, "error");
  assert.match(chat.error.message, /ERR_AUTH_001/);
  await chat.regenerate();
  assert.equal(chat.status, "ready");
  assert.equal(textOf(chat.messages.at(-1)), "Back.");
  await server.stop();
});

test("an abandoned answer is taken back, and version 6 is told", async () => {
  const script = 'order = "calls"\n[[step]]\ntext = "Half of an"\nend = "cut"\n[[step]]\ntext = "A whole answer."\n[[step]]\ntext = "Half of an"\nend = "cut"\n[[step]]\ntext = "A whole answer."\n';
  const server = await startServer({ script: script.replace('order = "calls"\n', "") });
  const chat = chatAt(server.port);
  await chat.sendMessage({ text: "go" });
  assert.equal(textOf(chat.messages.at(-1)), "A whole answer.");
  const six = chunksOf(await (await post(server.port, { id: "six", messages: [user("go")] }, "?ui=6")).text());
  assert.ok(six.some((chunk) => chunk.includes("data-budao-abandoned")));
  assert.ok(!six.some((chunk) => chunk.includes("reset-step")));
  assert.equal(six.at(-1), "[DONE]");
  await server.stop();
});

test("after a reload the whole running message comes again", async () => {
  const server = await startServer({ script: `[[step]]\nthink = "I think."\ntext = "${long(60)}"\npace_ms = 10\nrepeat = "forever"\n` });
  const first = chatAt(server.port);
  const sending = first.sendMessage({ text: "go" });
  await until(() => first.messages.length === 2 && textOf(first.messages[1]).length > 20);
  await first.stop();
  await sending;
  const reloaded = chatAt(server.port, { chat: { messages: first.messages } });
  await reloaded.resumeStream();
  assert.equal(reloaded.error, undefined);
  assert.equal(reloaded.messages.length, 2);
  assert.equal(textOf(reloaded.messages[1]), long(60));
  const idle = await fetch(`http://127.0.0.1:${server.port}/api/chat/chat-1/stream`, { headers });
  assert.equal(idle.status, 204);
  await server.stop();
});

test("WorkflowChatTransport continues by its count of chunks after every cut", async () => {
  const server = await startServer({ script: `[[step]]\ntext = "${long(150)}"\npace_ms = 5\nrepeat = "forever"\n` });
  const proxy = await startProxy(server.port, (n) => ({ cutAfter: 1200 + 200 * n }));
  const transport = new WorkflowChatTransport({
    api: `http://127.0.0.1:${proxy.port}/api/chat`,
    maxConsecutiveErrors: 50,
    fetch: (url, init) => fetch(url, { ...init, headers: { ...init?.headers, ...headers } }),
    prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({ body: { id, messages, trigger, messageId } }),
  });
  const quiet = console.error;
  console.error = () => {};
  const chat = new Chat({ id: "workflow", transport });
  await chat.sendMessage({ text: "go" });
  console.error = quiet;
  assert.equal(chat.error, undefined);
  assert.equal(textOf(chat.messages.at(-1)), long(150));
  assert.ok(proxy.accepted() > 2, `${proxy.accepted()} connections`);
  proxy.stop();
  await server.stop();
});

test("WorkflowChatTransport holds conversations with a tool, an approval and a failure, over a line that is cut", async () => {
  const look = `[[step]]\nthink = "Let me look."\ntext = "I look."\n[[step.call]]\ntool = "fs_glob"\narguments = { pattern = "*" }\n`;
  const script = `order = "history"\n${look}[[step]]\ntext = "I write it."\n${call}[[step]]\ntext = "Written."\nrepeat = "forever"\n`;
  const server = await startServer({ script });
  const failing = await startServer({ script: '[[step]]\nfault = "model_authentication"\n[[step]]\ntext = "Back."\nrepeat = "forever"\n' });
  const workflowAt = (port) =>
    new WorkflowChatTransport({
      api: `http://127.0.0.1:${port}/api/chat`,
      maxConsecutiveErrors: 50,
      fetch: (url, init) => fetch(url, { ...init, headers: { ...init?.headers, ...headers } }),
      prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({ body: { id, messages, trigger, messageId } }),
    });
  const proxy = await startProxy(server.port, (n) => ({ cutAfter: 1500 + 400 * n }));
  const quiet = console.error;
  console.error = () => {};
  for (const approved of [true, false]) {
    fs.rmSync(path.join(server.home, "done.txt"), { force: true });
    const chat = new Chat({ id: `workflow-${approved}`, transport: workflowAt(proxy.port), sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
    await chat.sendMessage({ text: "go" });
    const tools = () => chat.messages.at(-1).parts.filter((part) => part.type === "dynamic-tool");
    assert.deepEqual(tools().map(({ state }) => state), ["output-available", "approval-requested"]);
    await chat.addToolApprovalResponse({ id: tools()[1].approval.id, approved });
    await until(() => chat.status === "ready" && textOf(chat.messages.at(-1)).includes("Written."));
    assert.equal(chat.error, undefined);
    assert.deepEqual(tools().map(({ state }) => state), ["output-available", approved ? "output-available" : "output-denied"]);
    assert.equal(textOf(chat.messages.at(-1)), "I look.I write it.Written.");
    assert.equal(fs.existsSync(path.join(server.home, "done.txt")), approved);
  }
  const chat = new Chat({ id: "failing", transport: workflowAt(failing.port) });
  await chat.sendMessage({ text: "go" });
  assert.match(chat.error.message, /ERR_AUTH_001/);
  await chat.sendMessage({ text: "again" });
  assert.equal(textOf(chat.messages.at(-1)), "Back.");
  console.error = quiet;
  proxy.stop();
  await server.stop();
  await failing.stop();
});

test("a run continues after any count of chunks, and a count beyond its end is refused", async () => {
  const server = await startServer({ script: asking });
  const response = await post(server.port, { id: "counted", messages: [user("go")] });
  assert.equal(response.headers.get("x-vercel-ai-ui-message-stream"), "v1");
  const run = response.headers.get("x-workflow-run-id");
  const whole = chunksOf(await response.text());
  assert.equal(whole.at(-1), "[DONE]");
  const get = (index) => fetch(`http://127.0.0.1:${server.port}/api/chat/${run}/stream?startIndex=${index}`, { headers });
  for (let index = 0; index < whole.length; index++) {
    assert.deepEqual(chunksOf(await (await get(index)).text()), whole.slice(index), `after ${index}`);
  }
  const tail = await get(-3);
  assert.equal(tail.headers.get("x-workflow-stream-tail-index"), String(whole.length - 2));
  assert.deepEqual(chunksOf(await tail.text()), whole.slice(-4));
  assert.equal((await get(1000)).status, 409);
  await server.stop();
});

test("lines that are cut at growing numbers of bytes and kill -9 of the server lose and repeat nothing", async () => {
  const script = `order = "history"\n[[step]]\nthink = "I think."\ntext = "${long(80)}"\npace_ms = 12\nrepeat = "forever"\n`;
  let victim = await startServer({ script });
  const { home } = victim;
  const proxy = await startProxy(() => victim.port, (n) => ({ cutAfter: 1200 + 400 * n }));
  const chat = new Chat({ id: "killed", transport: transportAt(proxy.port, { fetch: resumingFetch({ retry: { base: 20, max: 200, tries: 400 } }) }) });
  const sending = chat.sendMessage({ text: "go" });
  await until(() => chat.messages.length === 2 && textOf(chat.messages[1]).length > 100);
  await victim.crash();
  victim = await startServer({ script, home });
  await sending;
  assert.equal(chat.error, undefined);
  assert.equal(textOf(chat.messages[1]), long(80));
  assert.ok(proxy.accepted() > 2);
  proxy.stop();
  await victim.stop();
});

/** An agent that speaks AG-UI and counts to ten, or ends its stream in the middle. */
async function startAgent() {
  const agent = http.createServer(async (request, response) => {
    let text = "";
    for await (const bytes of request) text += bytes;
    const body = JSON.parse(text);
    const asked = body.messages.at(-1).content;
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
    send({ type: "RUN_STARTED", threadId: body.threadId, runId: body.runId });
    send({ type: "TEXT_MESSAGE_START", messageId: body.runId, role: "assistant" });
    for (let number = 1; number <= 10; number++) {
      send({ type: "TEXT_MESSAGE_CONTENT", messageId: body.runId, delta: `${number} ` });
      if (asked === "break" && number === 5) return response.end();
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    send({ type: "TEXT_MESSAGE_END", messageId: body.runId });
    send({ type: "RUN_FINISHED", threadId: body.threadId, runId: body.runId });
    response.end();
  });
  await new Promise((resolve) => agent.listen(0, "127.0.0.1", resolve));
  return agent;
}

test("a relayed agent is a chat: its answers outlive a cut line, and its cut is an error with the part that came", async () => {
  const agent = await startAgent();
  const server = await startServer({ args: ["--engine", `agui:http://127.0.0.1:${agent.address().port}/agent`] });
  const proxy = await startProxy(server.port, (n) => ({ cutAfter: 900 + 200 * n }));
  const chat = chatAt(proxy.port, { transport: { fetch: resumingFetch({ retry: { base: 5, max: 50, tries: 400 } }) } });
  await chat.sendMessage({ text: "count" });
  assert.equal(chat.error, undefined);
  assert.equal(textOf(chat.messages.at(-1)), "1 2 3 4 5 6 7 8 9 10 ");
  assert.ok(proxy.accepted() > 1, `${proxy.accepted()} connections`);
  await chat.sendMessage({ text: "break" });
  assert.match(chat.error.message, /ERR_CONN_010/);
  assert.equal(textOf(chat.messages.at(-1)), "1 2 3 4 5 ");
  await chat.sendMessage({ text: "count" });
  assert.equal(textOf(chat.messages.at(-1)), "1 2 3 4 5 6 7 8 9 10 ");
  proxy.stop();
  await server.stop();
  agent.closeAllConnections();
  agent.close();
});

test("bad input gets an answer, and the chat stays usable", async () => {
  const server = await startServer({ script: asking });
  const { port } = server;
  const refused = async (response, status, pattern) => {
    const text = await response.text();
    assert.equal(response.status, status, text);
    assert.match(text, pattern);
  };
  const id = "bad";
  const first = chunksOf(await (await post(port, { id, messages: [user("go")] })).text());
  assert.equal(JSON.parse(first.at(-2)).finishReason, "tool-calls");
  const part = (more) => ({ type: "dynamic-tool", toolName: "fs_write", toolCallId: "c9", input: {}, ...more });
  const assistant = (parts, name = "turn-1") => ({ id: name, role: "assistant", parts });
  await refused(await post(port, { messages: [user("go")] }), 422, /prepareSendMessagesRequest/);
  await refused(await post(port, { id, messages: [user("other words")] }), 409, /ERR_/);
  await refused(await post(port, { id, messages: [user("go"), assistant([]), user("more", "u2")] }), 422, /open questions/);
  await refused(await post(port, { id, messages: [user("go"), assistant([], "somebody"), user("more", "u2")] }), 422, /messages\[1\]/);
  await refused(await post(port, { id, messages: [user("go"), assistant([part({ state: "output-available", output: 1 })])] }), 422, /toolCallId/);
  await refused(await post(port, { id, messages: [user("go"), assistant([part({ state: "approval-responded", approval: { id: "ask_c9", approved: true } })])] }), 409, /ERR_/);
  await refused(await post(port, { id, trigger: "regenerate-message", messages: [user("go")] }), 422, /regenerate/);
  await refused(await fetch(`http://127.0.0.1:${port}/api/chat/nobody/stream`, { headers }), 404, /ERR_SESS/);
  const asked = JSON.parse(first.find((chunk) => chunk.includes("tool-approval-request")));
  const answer = { id, messages: [user("go"), assistant([part({ toolCallId: asked.toolCallId, state: "approval-responded", approval: { id: asked.approvalId, approved: true } })])] };
  const done = chunksOf(await (await post(port, answer)).text());
  assert.equal(JSON.parse(done.at(-2)).finishReason, "stop");
  assert.deepEqual(chunksOf(await (await post(port, answer)).text()), done, "the same answer again joins its run");
  await refused(await post(port, { id, messages: [user("other words")] }), 409, /ERR_/);
  await server.stop();
});
