// A model service for tests: it speaks the OpenAI protocol, and refuses when it is told to.

import http from "node:http";

/** Starts it; `usage` is what it reports. `refuse(seconds)` makes it answer 429 until then; `stop()` ends it. */
export async function startModel({ text = "An answer.", usage } = {}) {
  let busyUntil = 0;
  const server = http.createServer((request, response) => {
    request.resume();
    request.on("end", () => {
      const left = Math.ceil((busyUntil - Date.now()) / 1000);
      if (left > 0) {
        response.writeHead(429, { "content-type": "application/json", "retry-after": String(left) });
        return void response.end(JSON.stringify({ error: { message: "slow down", type: "rate_limit_exceeded" } }));
      }
      response.writeHead(200, { "content-type": "text/event-stream" });
      const chunk = (delta, finish = null) => response.write(`data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", created: 1, model: "real", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`);
      chunk({ role: "assistant", content: text });
      chunk({}, "stop");
      if (usage !== undefined) response.write(`data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", created: 1, model: "real", choices: [], usage })}\n\n`);
      response.end("data: [DONE]\n\n");
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    name: `openai:real@http://127.0.0.1:${server.address().port}/v1`,
    refuse: (seconds) => {
      busyUntil = Date.now() + seconds * 1000;
    },
    stop: () => server.close(),
  };
}
