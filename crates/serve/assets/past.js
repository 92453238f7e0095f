// What happened so far, in one answer: a long history comes faster than frame by frame. Who goes on live attaches where
// it ends.

import { request } from "./api.js";

/** Gives every frame of a session to `take`, and the cursor behind the last one. */
export async function past(session, take) {
  const response = await request(`/v1/sessions/${encodeURIComponent(session)}/frames`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let cursor;
  let rest = "";
  for (;;) {
    // Where it breaks off, the socket goes on.
    const { value = "", done } = await reader.read().catch(() => ({ done: true }));
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") continue;
      const frame = JSON.parse(line);
      take(frame);
      cursor = { epoch: frame.epoch, seq: frame.seq };
    }
    if (done) return cursor;
  }
}
