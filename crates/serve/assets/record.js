// The raw records of a session, read from its export as far as they are asked for.

import { request } from "./api.js";

/** The pictures in a record, as a message takes them. */
export function picturesIn(value, found = []) {
  if (typeof value !== "object" || value === null) return found;
  if (typeof value.media_type === "string" && typeof value.data === "string") {
    const { media_type, data } = value;
    found.push({ media_type, data, name: media_type, size: Math.floor(data.length * 0.75) });
    return found;
  }
  for (const child of Object.values(value)) picturesIn(child, found);
  return found;
}

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
