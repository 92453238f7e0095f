// Front ends of other people, against a server that comes back: a `fetch` whose event streams continue where they were cut.
//
// AG-UI's HttpAgent and the AI SDK's transports take a `fetch`, and take a clean end of a stream for success. With this one
// they see one whole stream. Nothing here depends on their packages.

import { Fault } from "./fault.js";

/** How a cut stream is continued. */
export interface ResumeOptions {
  /** Makes the requests; the global `fetch` unless another one is passed. */
  fetch?: typeof fetch;
  /** The wait before a further try grows from `base` to `max` milliseconds; `tries` in a row may fail. */
  retry?: { base?: number; max?: number; tries?: number };
  /** A stream without a byte for this long is taken for cut, in milliseconds; the server sends something every 15 s. */
  silence?: number;
}

/** The address at which the server continues a stream, relative to the request's. */
const RESUME = "x-budao-resume";

/** Waits between two tries, with a tenth of jitter: the server's own rule. */
class Backoff {
  private attempt = 0;
  constructor(
    private readonly base: number,
    private readonly max: number,
    private readonly tries: number,
  ) {}

  reset(): void {
    this.attempt = 0;
  }

  /** Waits for the next try; throws `error` if there is none. */
  async wait(error: unknown, signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted || ++this.attempt >= this.tries) throw error;
    const plain = Math.min(this.base * 2 ** (this.attempt - 1), this.max);
    await new Promise((resolve) => setTimeout(resolve, plain * (0.9 + 0.2 * Math.random())));
  }
}

/** What a stream has shown so far. */
interface Progress {
  /** The id of the last event. */
  last?: string;
  /** Whether the last event ended a run. */
  isOver: boolean;
}

/**
 * A `fetch` for `HttpAgent`, `DefaultChatTransport` and other clients of a Budao server. Requests that did not get through are
 * sent again: a run has an id, so it happens once. A stream that is cut continues after its last event, with no event
 * lost or repeated. Other responses are passed through.
 */
export function resumingFetch(options: ResumeOptions = {}): typeof fetch {
  const { base = 200, max = 10_000, tries = 20 } = options.retry ?? {};
  const silence = options.silence ?? 45_000;
  const inner: typeof fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  return async (input, init) => {
    const backoff = new Backoff(base, max, tries);
    const send = (): Promise<Response> => tryUntil(() => inner(input, init), backoff, init?.signal ?? undefined);
    const response = await send();
    const address = response.headers.get(RESUME);
    if (!response.ok || response.body === null || address === null) return response;
    const url = new URL(address, response.url || urlOf(input));
    const again = (last: string | undefined): Promise<Response> =>
      last === undefined ? send() : tryUntil(() => inner(url, resumption(init, last)), backoff, init?.signal ?? undefined);
    const events = continued(response, again, backoff, silence, init?.signal ?? undefined);
    return new Response(toStream(events), { status: response.status, headers: response.headers });
  };
}

/** The part of AG-UI's `HttpAgent` that {@link resumable} builds on. */
interface HttpAgentLike {
  fetch: (url: string, init: RequestInit) => Promise<Response>;
  run(input: never): unknown;
}

/**
 * `HttpAgent` of `@ag-ui/client` that survives a cut line and a restarted server: `class Agent extends resumable(HttpAgent) {}`.
 * `connectAgent()` loads the thread and follows the running answer, as after a reload.
 */
export function resumable<Base extends new (...args: any[]) => HttpAgentLike>(HttpAgent: Base, options: ResumeOptions = {}) {
  return class ResumableHttpAgent extends HttpAgent {
    constructor(...args: any[]) {
      super(...args);
      const given = this.fetch;
      const own = { ...options, ...(given === undefined ? {} : { fetch: given as unknown as typeof fetch }) };
      this.fetch = resumingFetch(own) as unknown as HttpAgentLike["fetch"];
    }

    /** Joins the thread: an input without news is no run of its own. */
    connect(input: { messages: unknown[] }): unknown {
      return this.run({ ...input, messages: [] } as never);
    }
  };
}

function urlOf(input: RequestInfo | URL): string {
  return input instanceof Request ? input.url : String(input);
}

function resumption(init: RequestInit | undefined, last: string): RequestInit {
  const headers = new Headers(init?.headers);
  headers.delete("content-type");
  headers.set("last-event-id", last);
  const { signal, credentials } = init ?? {};
  return { headers, ...(signal == null ? {} : { signal }), ...(credentials === undefined ? {} : { credentials }) };
}

/** Makes a request until it gets through. A server that is busy or restarts is tried again; a refusal is an answer. */
async function tryUntil(request: () => Promise<Response>, backoff: Backoff, signal: AbortSignal | undefined): Promise<Response> {
  for (;;) {
    try {
      const response = await request();
      if (![429, 502, 503, 504].includes(response.status)) return response;
      await backoff.wait(undefined, signal).catch(() => {
        throw response;
      });
      await response.body?.cancel();
    } catch (error) {
      if (error instanceof Response) return error;
      await backoff.wait(error, signal);
    }
  }
}

/** The whole events of a stream and of its continuations. */
async function* continued(
  first: Response,
  again: (last: string | undefined) => Promise<Response>,
  backoff: Backoff,
  silence: number,
  signal: AbortSignal | undefined,
): AsyncGenerator<string> {
  const progress: Progress = { isOver: false };
  let response = first;
  for (;;) {
    let error: unknown = new Fault("connection_lost", "The stream ended before its run.");
    try {
      for await (const event of wholeEvents(response, silence)) {
        note(event, progress);
        backoff.reset();
        yield event;
      }
      if (progress.isOver) return;
    } catch (cut) {
      error = cut;
    }
    await backoff.wait(error, signal);
    response = await again(progress.last);
    if (response.status === 204) return;
    if (!response.ok || response.body === null) {
      throw new Fault("connection_lost", `The stream cannot be continued: HTTP ${response.status}`, { status: response.status });
    }
  }
}

/** Remembers what an event says about the place in the stream. */
function note(event: string, progress: Progress): void {
  const id = /^id: ?(.*)$/m.exec(event)?.[1];
  if (id !== undefined) progress.last = id;
  const data = /^data: ?(.*)$/m.exec(event)?.[1];
  if (data !== undefined) progress.isOver = data === "[DONE]" || isTerminal(data);
}

function isTerminal(data: string): boolean {
  if (!data.includes('"RUN_')) return false;
  try {
    const { type } = JSON.parse(data) as { type?: unknown };
    return type === "RUN_FINISHED" || type === "RUN_ERROR";
  } catch {
    return false;
  }
}

/** The events of one response. An event that was cut is left out. */
async function* wholeEvents(response: Response, silence: number): AsyncGenerator<string> {
  if (response.body === null) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await within(reader.read(), silence);
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        yield rest.slice(0, end + 2);
        rest = rest.slice(end + 2);
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

async function within<T>(promise: Promise<T>, ms: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Fault("connection_lost", "No data received for too long.")), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

function toStream(events: AsyncGenerator<string>): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await events.next();
        if (done) controller.close();
        else controller.enqueue(encoder.encode(value));
      } catch (error) {
        controller.error(error);
      }
    },
    async cancel() {
      await events.return(undefined);
    },
  });
}
