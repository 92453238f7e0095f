// A stand-in for a WebSocket where there is none, or where something between here and the server blocks it: events come
// as server-sent events, commands go over HTTP. The client does not notice.

import { request, tokenNow } from "./api.js";

const OPEN = 1;
/** Sockets that never opened, after which the other way is taken. */
const FAILURES_MAX = 2;
let failures = 0;

/** The socket for the client: a real one if that works, with the token of now. */
export function Socket(url, [protocol] = []) {
  if (globalThis.WebSocket === undefined || failures >= FAILURES_MAX) return new EventSocket();
  const token = tokenNow();
  const socket = new WebSocket(url, token === undefined ? undefined : [protocol ?? "budao.v1", `bearer.${token}`]);
  let hasOpened = false;
  socket.addEventListener("open", () => {
    hasOpened = true;
    failures = 0;
  });
  socket.addEventListener("close", async () => {
    if (hasOpened) return;
    // A refused token is asked for again; without a server nothing else would work either.
    const isAlive = await request("/v1/sessions?limit=1").then(() => true, () => false);
    if (isAlive && tokenNow() === token) failures += 1;
  });
  return socket;
}

class EventSocket {
  readyState = 0;
  #stop = new AbortController();

  constructor() {
    queueMicrotask(() => {
      if (this.readyState !== 0) return;
      this.readyState = OPEN;
      this.onopen?.();
    });
  }

  send(text) {
    const frame = JSON.parse(text);
    if (frame.event === "user.reconnect") this.#stream(frame);
    else if (frame.event === "user.create_session") this.#create(frame);
    else if (frame.event !== "user.ack") this.#command(frame);
  }

  close() {
    this.readyState = 3;
    this.#stop.abort();
  }

  #give(event) {
    if (this.readyState === OPEN) this.onmessage?.({ data: JSON.stringify(event) });
  }

  #end(code, reason) {
    if (this.readyState !== OPEN) return;
    this.close();
    this.onclose?.({ code, reason });
  }

  async #create({ content, command_id: id }) {
    const made = await this.#post("/v1/sessions", { ...content, command_id: id }, id);
    if (made === undefined) return;
    this.#give({ event: "agent.session_created", session_id: made.session_id, metadata: { command_id: id } });
    this.#stream({ session_id: made.session_id, content: { last_seq: 0 } });
  }

  async #command(frame) {
    const path = `/v1/sessions/${encodeURIComponent(frame.session_id)}/commands`;
    const done = await this.#post(path, frame, frame.command_id);
    if (done !== undefined) this.#give({ event: "system.notice", session_id: frame.session_id, content: "Accepted.", metadata: { ...done, ok: true } });
  }

  /** Sends a command; a refusal is given as the frame a socket would bring. */
  async #post(path, body, id) {
    try {
      return await (await request(path, { method: "POST", body })).json();
    } catch (problem) {
      this.#refused(problem, id);
      return undefined;
    }
  }

  /** A refusal is an answer; anything else is a broken connection. */
  #refused({ status, body }, id, session) {
    if (status === undefined) return this.#end(1006, "the request failed");
    const { detail, code } = body;
    return this.#give({ event: "error.validation", session_id: session, content: detail, show_content: detail, metadata: { command_id: id, status: "rejected", error_code: code } });
  }

  async #stream({ session_id: session, command_id: id, content }) {
    const query = new URLSearchParams();
    if (content.epoch === undefined) query.set("last_seq", content.last_seq ?? 0);
    else query.set("last_event_id", `${session}.${content.epoch}.${content.last_seq}`);
    let response;
    try {
      response = await request(`/v1/sessions/${encodeURIComponent(session)}/events?${query}`, { signal: this.#stop.signal });
    } catch (problem) {
      return this.#refused(problem, id, session);
    }
    // A broken stream ends like a broken socket.
    await this.#read(response.body.pipeThrough(new TextDecoderStream()).getReader(), id).catch(() => {});
    return this.#end(1006, "the event stream ended");
  }

  async #read(reader, id) {
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines.filter((line) => line.startsWith("data:"))) {
        const event = JSON.parse(line.slice(5));
        // The stream itself is the command to resume.
        if (event.metadata?.action === "resume" && id !== undefined) event.metadata.command_id = id;
        this.#give(event);
      }
    }
  }
}
