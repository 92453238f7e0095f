// The raw records of a session, read from its export as far as they are asked for.

import { request } from "./api.js";

/** Gives the record at a position; undefined if there is none. */
export function recordsOf(session) {
  const records = new Map();
  let reader;
  let rest = "";
  let isDone = false;
  const more = async () => {
    reader ??= (await request(`/v1/sessions/${encodeURIComponent(session)}/export`)).body.pipeThrough(new TextDecoderStream()).getReader();
    const { value = "", done } = await reader.read();
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const seq = /"seq":(\d+)/.exec(line.slice(0, 400))?.[1];
      if (seq !== undefined) records.set(Number(seq), line);
    }
    isDone = done;
  };
  let queue = Promise.resolve();
  const find = async (seq) => {
    while (!records.has(seq) && !isDone) await more();
    // What was appended later is in an export of its own.
    if (!records.has(seq) && isDone) {
      reader = undefined;
      [isDone, rest] = [false, ""];
      while (!records.has(seq) && !isDone) await more();
    }
    const line = records.get(seq);
    return line === undefined ? undefined : JSON.parse(line);
  };
  return (seq) => {
    queue = queue.catch(() => {}).then(() => find(seq));
    return queue;
  };
}
