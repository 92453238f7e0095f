// An editor made with the protocol's own TypeScript library: one conversation with the agent, told as JSON.
//
// node client.mjs LIBRARY PROMPT PROGRAM ARGS…

import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [library, prompt, program, ...args] = process.argv.slice(2);
const acp = await import(pathToFileURL(library));
const cwd = process.cwd();
const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
const gone = new Promise((resolve) => child.on("exit", (code) => resolve(code)));
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));

const told = { kinds: {}, text: "", asked: 0, late: 0, calls: {} };
let answered = false;
const note = ({ params }) => {
  const update = params.update;
  told.kinds[update.sessionUpdate] = (told.kinds[update.sessionUpdate] ?? 0) + 1;
  if (answered && !/info|commands|option|mode/.test(update.sessionUpdate)) told.late += 1;
  if (update.sessionUpdate === "agent_message_chunk") told.text += update.content.text;
  if (update.toolCallId && update.status) told.calls[update.toolCallId] = update.status;
};
const allow = ({ params }) => {
  told.asked += 1;
  const option = params.options.find((option) => option.kind === "allow_once");
  return { outcome: { outcome: "selected", optionId: option.optionId } };
};

const app = acp
  .client({ name: "budao-test" })
  .onRequest(acp.methods.client.session.requestPermission, allow)
  .onNotification(acp.methods.client.session.update, note);

await app.connectWith(stream, async (agent) => {
  const hello = await agent.request("initialize", {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: {},
  });
  told.agent = hello.agentInfo.name;
  const { sessionId, modes } = await agent.request("session/new", { cwd, mcpServers: [] });
  told.session = sessionId;
  told.mode = modes.currentModeId;
  const answer = await agent.request("session/prompt", {
    sessionId,
    prompt: [{ type: "text", text: prompt }],
  });
  answered = true;
  told.stop = answer.stopReason;
  told.listed = (await agent.request("session/list", { cwd })).sessions.map((one) => one.title);
  await agent.request("session/close", { sessionId });
  const text = told.text;
  told.text = "";
  answered = false;
  await agent.request("session/load", { sessionId, cwd, mcpServers: [] });
  told.same = told.text === text;
  told.text = text;
});
child.stdin.end();
told.exit = await gone;
console.log(JSON.stringify(told));
