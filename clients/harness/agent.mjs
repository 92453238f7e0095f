// An agent that speaks AG-UI, for tests: it plays a script of events for each request, and remembers the requests.

import http from "node:http";

/** A text message as events. */
export const message = (id, text) => [
  { type: "TEXT_MESSAGE_START", messageId: id, role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: id, delta: text },
  { type: "TEXT_MESSAGE_END", messageId: id },
];

/** A call as events; with a result if it is given. */
export const toolCall = (id, name, args, result) => [
  { type: "TOOL_CALL_START", toolCallId: id, toolCallName: name },
  { type: "TOOL_CALL_ARGS", toolCallId: id, delta: JSON.stringify(args) },
  { type: "TOOL_CALL_END", toolCallId: id },
  ...(result === undefined ? [] : [{ type: "TOOL_CALL_RESULT", messageId: `${id}-result`, toolCallId: id, content: result }]),
];

/** Reasoning as events. */
export const reasoning = (id, text) => [
  { type: "REASONING_START", messageId: id },
  { type: "REASONING_MESSAGE_START", messageId: id, role: "reasoning" },
  { type: "REASONING_MESSAGE_CONTENT", messageId: id, delta: text },
  { type: "REASONING_MESSAGE_END", messageId: id },
  { type: "REASONING_END", messageId: id },
];

/** The end of a run with an interrupt about a call. */
export const interrupt = (id, toolCallId, message) => ({ type: "RUN_FINISHED", outcome: { type: "interrupt", interrupts: [{ id, reason: "tool_call", toolCallId, message }] } });

/**
 * Starts an agent. `play(body, n)` gives the events of the n-th request, from 0, without the start of the run. A run that does not end itself is
 * finished; `null` ends the stream at once; a number is a wait in milliseconds.
 */
export async function startAgent(play) {
  const asked = [];
  const server = http.createServer(async (request, response) => {
    let text = "";
    for await (const bytes of request) text += bytes;
    const body = JSON.parse(text);
    const events = play(body, asked.push(body) - 1);
    const run = { threadId: body.threadId, runId: body.runId };
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
    send({ type: "RUN_STARTED", ...run });
    let ended = false;
    for (const event of events) {
      if (event === null) return response.end();
      if (typeof event === "number") {
        await new Promise((resolve) => setTimeout(resolve, event));
        continue;
      }
      ended = event.type === "RUN_FINISHED" || event.type === "RUN_ERROR";
      send(event.type === "RUN_FINISHED" ? { ...run, ...event } : event);
    }
    if (!ended) send({ type: "RUN_FINISHED", ...run });
    response.end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/agent`,
    /** The bodies of the requests so far. */
    asked,
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
