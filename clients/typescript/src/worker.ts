// A worker: offers tools to the server, claims calls, runs them and reports one result for each. A call runs only after
// its claim was accepted. A result is sent until the server has answered, also after a reconnect.

import type { Client, Settings } from "./client.js";
import { answers, type Frame, isRefusal } from "./event.js";
import { Fault, Rejected } from "./fault.js";
import { Line } from "./line.js";
import { newId, Pending } from "./pending.js";
import { Tool, type ToolContext, ToolError } from "./tool.js";

export interface WorkerOptions {
  /** Shared by all processes with the same functions; `worker`. */
  name?: string;
  /** Calls at the same time; 16. */
  capacity?: number;
  /** Offers the tools to this session only; without it, to all sessions of the tenant. */
  sessionId?: string;
  /** Told what a function threw, for the log of this process; `console.error`. */
  onError?: (error: unknown, tool: string) => void;
}

/** Upper bounds for the text of a stack, and for the progress of one call. */
const DETAIL_CHARS = 16 * 1024;
const PROGRESS_CHARS = 64 * 1024;
/** How often a result is sent to a server that is busy. */
const RESULT_TRIES = 20;
/** Milliseconds between two progress frames of a call. */
const PROGRESS_PAUSE = 100;
/** Room for the envelope of a result in the server's largest frame. */
const ENVELOPE = 4 * 1024;

/** A call that this process claims, runs or reports. */
interface OpenCall {
  session: string;
  step: string;
  attempt: number;
  tool: Tool;
  frame: Frame;
  abort: AbortController;
  /** Why the call was cancelled; the server accepts no result after `deadline` and `over`. */
  reason: string;
  text: string;
  sent: number;
  timer: ReturnType<typeof setTimeout> | undefined;
  limit: ReturnType<typeof setTimeout> | undefined;
}

export class Worker {
  readonly workerId = newId();
  private readonly tools: Map<string, Tool>;
  private readonly calls = new Map<string, OpenCall>();
  private readonly pending = new Pending(undefined);
  private readonly line: Line;
  private readonly name: string;
  private readonly capacity: number;
  private offerId: string | undefined;
  private isDraining = false;
  private isReady = false;
  private frameBytes = 1024 * 1024;
  private idle: (() => void)[] = [];
  private lineLost: (() => void)[] = [];
  private settleReady!: { resolve: () => void; reject: (error: unknown) => void };
  private settleEnded!: { resolve: () => void; reject: (error: unknown) => void };

  /** Kept when the tools are offered for the first time; broken if the server refuses them. */
  readonly ready: Promise<void>;
  /** Kept when the worker has stopped; broken if the server refuses it. */
  readonly ended: Promise<void>;

  constructor(
    client: Client,
    // Tools of any arguments; each reads its own.
    tools: readonly Tool<any>[],
    private readonly options: WorkerOptions = {},
  ) {
    this.tools = new Map(tools.map((tool) => [tool.name, tool as Tool]));
    if (this.tools.size !== tools.length) throw new TypeError("two tools have the same name");
    this.name = options.name ?? "worker";
    this.capacity = options.capacity ?? 16;
    this.ready = new Promise((resolve, reject) => (this.settleReady = { resolve, reject }));
    this.ended = new Promise((resolve, reject) => (this.settleEnded = { resolve, reject }));
    this.ready.catch(() => {});
    this.ended.catch(() => {});
    this.line = new Line((client as unknown as { settings: Settings }).settings, {
      open: () => this.greet(),
      event: (event) => this.take(event),
      lost: () => {
        this.offerId = undefined;
        for (const resolve of this.lineLost.splice(0)) resolve();
      },
      over: (error) => this.over(error),
    });
    this.line.start();
  }

  /** Takes no new calls, waits until the open ones have ended, and disconnects. */
  async drain(): Promise<void> {
    this.isDraining = true;
    // A server that is gone offers no calls either, so a worker without open calls does not wait for its answer.
    const lost = new Promise<void>((resolve) => this.lineLost.push(resolve));
    const answer = this.ask({ event: "user.drain_worker", content: { worker_id: this.workerId } });
    await Promise.race([answer.then(() => {}, () => {}), lost]);
    if (this.calls.size > 0) await new Promise<void>((resolve) => this.idle.push(resolve));
    this.stop();
  }

  /** Disconnects at once. Calls that still run are aborted; their outcomes are unknown to the server. */
  stop(): void {
    for (const call of this.calls.values()) this.cancel(call, "over");
    this.line.stop();
    this.over(undefined);
  }

  /** Offers the tools, and names the calls that this process still holds. */
  private greet(): void {
    const holding = [...this.calls.values()].map((call) => ({ session_id: call.session, step_id: call.step, attempt: call.attempt }));
    const tools = [...this.tools.values()].map((tool) => tool.offer());
    this.offerId = newId();
    const frame: Frame = {
      event: "user.offer_tools",
      command_id: this.offerId,
      content: { worker: this.name, worker_id: this.workerId, capacity: this.capacity, tools, holding },
    };
    if (this.options.sessionId !== undefined) frame.session_id = this.options.sessionId;
    this.line.send(frame);
  }

  private take(event: Frame): void {
    if (this.offerId !== undefined && answers(event) === this.offerId) {
      this.offerId = undefined;
      return this.offered(event);
    }
    const meta = event.metadata ?? {};
    if (event.event === "system.connected") this.frameBytes = Number(meta["frame_bytes_max"] ?? this.frameBytes);
    else if (event.event === "tool.call") this.called(event);
    else if (event.event === "tool.cancel") this.toldToCancel(event);
    else if (meta["action"] === "shutdown") this.line.comeBack(Number(meta["retry_after_ms"] ?? 0));
    else this.pending.settle(event);
  }

  private offered(event: Frame): void {
    if (isRefusal(event)) {
      if (passes(event) && this.isReady) return this.line.drop("the offer was refused for now");
      this.line.stop();
      return this.over(new Rejected(event));
    }
    this.line.established();
    for (const frame of this.pending.frames()) this.line.send(frame);
    this.isReady = true;
    this.settleReady.resolve();
  }

  private called(event: Frame): void {
    const meta = event.metadata ?? {};
    const [session, step, attempt] = [event.session_id ?? "", event.step_id ?? "", Number(meta["attempt"] ?? 1)];
    const key = `${session} ${step} ${attempt}`;
    const tool = this.tools.get(String(meta["tool"]));
    if (tool === undefined || this.calls.has(key) || this.isDraining || this.calls.size >= this.capacity) return;
    const call: OpenCall = {
      session, step, attempt, tool, frame: event, abort: new AbortController(),
      reason: "", text: "", sent: 0, timer: undefined, limit: undefined,
    };
    this.calls.set(key, call);
    void this.attend(call).finally(() => {
      clearTimeout(call.timer);
      clearTimeout(call.limit);
      this.calls.delete(key);
      if (this.calls.size === 0) for (const resolve of this.idle.splice(0)) resolve();
    });
  }

  /** Claims a call, runs it and reports its result. Exactly one result follows an accepted claim. */
  private async attend(call: OpenCall): Promise<void> {
    try {
      await this.ask(this.about(call, "user.tool_claim", {}));
      const content = await this.run(call);
      if (call.reason === "" || call.reason === "cancelled") await this.deliver(call, content);
    } catch (error) {
      // Rejected: the call is over or another worker has it. A fault: this worker has stopped.
      if (!(error instanceof Rejected || error instanceof Fault)) this.report(error, call.tool.name);
    }
  }

  /** Sends the result. A server that is busy gets it again a little later. */
  private async deliver(call: OpenCall, content: Record<string, unknown>): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.ask(this.about(call, "user.tool_result", content));
        return;
      } catch (error) {
        if (!(error instanceof Rejected) || !passes(error.event) || attempt === RESULT_TRIES) throw error;
        await new Promise((resolve) => setTimeout(resolve, Math.min(100 * 2 ** attempt, 5000)));
      }
    }
  }

  /** Runs the function and gives the content of the result. */
  private async run(call: OpenCall): Promise<Record<string, unknown>> {
    const limit = call.frame.metadata?.["deadline_ms"];
    if (typeof limit === "number") call.limit = setTimeout(() => this.cancel(call, "deadline"), limit);
    if (call.reason !== "") return { error: { progress: "not_begun", detail: "cancelled before it began" } };
    const { run, reconcile } = call.tool.options;
    const isReconciling = call.frame.metadata?.["purpose"] === "reconcile";
    try {
      const args = await call.tool.parse(call.frame.content ?? {});
      if (!isReconciling) return this.bounded({ result: (await run(args, this.context(call))) ?? null });
      const found = (await reconcile?.(args, this.context(call))) ?? { verdict: "cannot_tell" };
      return this.bounded(found.verdict === "happened" ? { reconciliation: found.verdict, result: found.result } : { reconciliation: found.verdict });
    } catch (error) {
      if (error instanceof ToolError) return this.bounded({ error: told(error) });
      const progress = call.tool.options.readOnly === true ? "ended" : "unconfirmed";
      if (call.reason !== "") return { error: { progress, detail: `the call was cancelled (${call.reason})` } };
      this.report(error, call.tool.name);
      return { error: { detail: stackOf(error) } };
    }
  }

  private context(call: OpenCall): ToolContext {
    const meta = call.frame.metadata ?? {};
    const traceparent = meta["traceparent"];
    return {
      sessionId: call.session,
      callId: call.step,
      attempt: call.attempt,
      idempotencyKey: String(meta["idempotency_key"] ?? ""),
      traceparent: typeof traceparent === "string" ? traceparent : undefined,
      signal: call.abort.signal,
      progress: (text) => this.collect(call, text),
    };
  }

  /** The content, or an error if it is not JSON or larger than the server's largest frame. */
  private bounded(content: Record<string, unknown>): Record<string, unknown> {
    let size: number;
    try {
      size = new TextEncoder().encode(JSON.stringify(content, finiteNumbers())).length;
    } catch (error) {
      if (error instanceof RangeError && error.cause === finiteNumbers) {
        return { error: { message: `${error.message}.`, progress: "done" } };
      }
      return { error: { progress: "done", detail: `the result is not JSON: ${stackOf(error)}` } };
    }
    const most = this.frameBytes - ENVELOPE;
    if (size <= most) return content;
    const message = `The call is done, but its result is too large: ${size} bytes; at most ${most} are passed on.`;
    return { error: { message, advice: ["Ask for less at once"], progress: "done" } };
  }

  private toldToCancel(event: Frame): void {
    const attempt = Number(event.metadata?.["attempt"] ?? 1);
    const call = this.calls.get(`${event.session_id} ${event.step_id} ${attempt}`);
    if (call !== undefined) this.cancel(call, String(event.metadata?.["reason"] ?? "cancelled"));
  }

  private cancel(call: OpenCall, reason: string): void {
    if (call.reason !== "" && call.reason !== "cancelled") return;
    call.reason = reason;
    call.abort.abort(new Error(`the call was cancelled (${reason})`));
  }

  private collect(call: OpenCall, text: string): void {
    call.text += text.slice(0, Math.max(0, PROGRESS_CHARS - call.sent - call.text.length));
    if (call.text === "" || call.timer !== undefined) return;
    call.timer = setTimeout(() => {
      call.timer = undefined;
      const delta = call.text;
      call.text = "";
      call.sent += delta.length;
      this.send(this.about(call, "user.tool_output", { delta }));
    }, PROGRESS_PAUSE);
  }

  private about(call: OpenCall, event: string, content: Record<string, unknown>): Frame {
    const who = { attempt: call.attempt, worker_id: this.workerId };
    return { event, session_id: call.session, step_id: call.step, content: { ...who, ...content } };
  }

  private ask(frame: Frame): Promise<Frame> {
    const id = newId();
    return this.pending.ask({ ...frame, command_id: id }, id, (ready) => this.send(ready));
  }

  /** Nothing is sent before the offer of this connection is accepted; then the pending commands are. */
  private send(frame: Frame): void {
    if (this.offerId === undefined) this.line.send(frame);
  }

  private report(error: unknown, tool: string): void {
    (this.options.onError ?? ((thrown, name) => console.error(`tool failed, tool=${name}`, thrown)))(error, tool);
  }

  private over(error: unknown): void {
    const reason = error ?? new Fault("connection_lost", "The worker was stopped.");
    this.pending.fail(reason);
    this.settleReady.reject(reason);
    if (error === undefined) this.settleEnded.resolve();
    else this.settleEnded.reject(error);
  }
}

/** True if the server may accept the same command later. */
function passes(event: Frame): boolean {
  return ["transient", "resource"].includes(String(event.metadata?.["category"]));
}

/** An author's error. The model reads message, advice and data; the operator also the stack. */
function told(error: ToolError): Record<string, unknown> {
  const { message, advice, progress, data } = error;
  return { message, advice, progress, detail: stackOf(error), ...(data === undefined ? {} : { data }) };
}

/** A replacer for `JSON.stringify` that refuses NaN and infinity, which would become null. */
function finiteNumbers(): (this: unknown, key: string, value: unknown) => unknown {
  const places = new WeakMap<object, string>();
  return function (key, value) {
    const place = (places.get(this as object) ?? "") + (places.has(this as object) ? `/${key.replace(/~/g, "~0").replace(/\//g, "~1")}` : "");
    if (typeof value === "number" && !Number.isFinite(value)) {
      const [, part = "", pointer = ""] = /^\/([^/]*)(.*)$/s.exec(place) ?? [];
      throw new RangeError(`Its ${part} has ${value} at ${pointer || "/"}, which JSON cannot express`, { cause: finiteNumbers });
    }
    if (typeof value === "object" && value !== null) places.set(value, place);
    return value;
  };
}

function stackOf(error: unknown): string {
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return text.slice(0, DETAIL_CHARS);
}
