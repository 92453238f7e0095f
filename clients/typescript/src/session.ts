// A session as its user holds it: it asks, and it tells. Between the two is a line that may come and go.

import type { Settings } from "./client.js";
import { answers, type Frame, isRefusal, type SessionEvent } from "./event.js";
import { Fault, Rejected, TurnCancelled, TurnFailed } from "./fault.js";
import { Line } from "./line.js";
import { newId, Pending } from "./pending.js";
import { Queue } from "./queue.js";
import { type Cursor, Thread } from "./thread.js";

/** The answer to a question: go on, go on with something else in its place, or do not. */
export type Decision =
  | { confirmed: true; tasks?: unknown[]; arguments?: Record<string, unknown> }
  | { confirmed: false; feedback?: string };

/** A question of the server: `agent.user_confirm`. */
export type Question = Extract<SessionEvent, { event: "agent.user_confirm" }>;

/** The answer of a run. */
export type FinalAnswer = Extract<SessionEvent, { event: "agent.final_answer" }>;

/** Decides about a question. Without such a function a run answers no. */
export type Approve = (question: Question) => boolean | Decision | Promise<boolean | Decision>;

export interface RunOptions {
  approve?: Approve;
  /** Called with every event of the run. */
  onEvent?: (event: SessionEvent) => void;
}

/** The events that end a run. */
const ENDS: ReadonlySet<string> = new Set(["agent.final_answer", "agent.interrupted", "agent.error"]);

export class Session {
  /** Kept when the server knows the session on this line for the first time. */
  readonly ready: Promise<void>;

  private readonly line: Line;
  private readonly queue: Queue<{ event: Frame; cursor: Cursor }>;
  private readonly pending: Pending;
  private readonly decided = new Set<string>();
  private thread: Thread | undefined;
  private taken: Cursor;
  private resumeId: string | undefined;
  private tornAt = -1;
  private opened: { resolve: () => void; reject: (error: unknown) => void } | undefined;

  /** Use {@link Client.create} and {@link Client.attach}. */
  constructor(
    private readonly settings: Settings,
    sessionId?: string,
    cursor: Cursor = { epoch: "", seq: 0 },
  ) {
    this.taken = cursor;
    this.pending = new Pending(settings.reply);
    this.thread = sessionId === undefined ? undefined : new Thread(sessionId, cursor);
    this.ready = new Promise((resolve, reject) => {
      this.opened = { resolve, reject };
    });
    // The caller of `create` gets the failure from there.
    this.ready.catch(() => {});
    this.queue = new Queue((left) => {
      if (left <= settings.backlog / 2) this.line.goOn();
    });
    this.line = new Line(settings, {
      open: () => this.greet(),
      event: (event) => this.take(event),
      lost: (fault, wasEstablished) => this.lost(fault, wasEstablished),
      over: (error) => this.over(error),
    });
    this.line.start();
  }

  /** Its id: with it and a cursor, anyone allowed may attach. */
  get id(): string {
    return this.thread?.session ?? "";
  }

  /** Where the last event that `events()` gave stands: keep it to come back later. */
  get cursor(): Cursor {
    return { ...this.taken };
  }

  /** Past events first, then new ones, each once, in order. What this side makes carries a `fault`. */
  async *events(): AsyncGenerator<SessionEvent, void, void> {
    for (;;) {
      const item = await this.queue.next();
      if (item === undefined) return;
      this.taken = item.cursor;
      yield item.event as SessionEvent;
    }
  }

  /** Sends a message and gives the events up to the end of its run, which is the last one. */
  async *stream(text: string, options: RunOptions = {}): AsyncGenerator<SessionEvent, void, void> {
    const id = newId();
    await this.ask("user.message", { content: text }, id);
    for await (const event of this.events()) {
      if (event.fault !== undefined && event.fault.kind !== "connection_lost") throw event.fault;
      options.onEvent?.(event);
      yield event;
      if (event.event === "agent.user_confirm") await this.decide(event, options.approve);
      if (ENDS.has(event.event) && (event as Frame).metadata?.["command_id"] === id) return;
    }
    throw new Fault("connection_lost", "The session was closed on this side.");
  }

  /** Sends a message and gives its answer. Throws {@link TurnFailed} or {@link TurnCancelled}. */
  async run(text: string, options: RunOptions = {}): Promise<FinalAnswer> {
    let last: SessionEvent | undefined;
    for await (const event of this.stream(text, options)) last = event;
    if (last?.event === "agent.final_answer") return last;
    if (last?.event === "agent.error") throw new TurnFailed(last as Frame);
    throw new TurnCancelled(last?.show_content ?? "The run was cancelled.");
  }

  /** Asks the program once for each question. */
  private async decide(question: Question, approve: Approve | undefined): Promise<void> {
    const { step_id: step } = question;
    if (step === undefined || step === null || this.decided.has(step)) return;
    this.decided.add(step);
    const decided = approve === undefined ? false : await approve(question);
    const decision: Decision = typeof decided === "boolean" ? { confirmed: decided } : decided;
    const digest = (question as Frame).metadata?.["digest"];
    try {
      await this.ask("user.response", { step_id: step, content: { ...decision, digest } });
    } catch (error) {
      // Another client was faster, or the run has ended.
      if (!(error instanceof Rejected)) throw error;
    }
  }

  /** Sends a message: durable when the promise is kept, and answered whatever happens to the line. */
  send(text: string): Promise<Frame> {
    return this.ask("user.message", { content: text });
  }

  /** Answers the question that carried this `step_id`. */
  answer(stepId: string, decision: Decision): Promise<Frame> {
    return this.ask("user.response", { step_id: stepId, content: decision });
  }

  /** Stops what runs; the session can be used on. */
  cancel(): Promise<Frame> {
    return this.ask("user.cancel", {});
  }

  /** Says what became of a call whose outcome is unknown; the first settlement counts. */
  settleDoubt(
    callId: string,
    outcome: "happened" | "did_not_happen" | "left_to_model",
    result?: unknown,
  ): Promise<Frame> {
    const content = { call_id: callId, outcome, ...(result === undefined ? {} : { result }) };
    return this.ask("user.settle_doubt", { content });
  }

  /** Takes back a message that waits for its turn; the answer to `send` names it in `metadata.command_id`. */
  withdraw(commandId: string): Promise<Frame> {
    return this.ask("user.withdraw", { content: { message: commandId } });
  }

  /** Continues the last turn, which failed, from where it stood; calls that ended are not made again. */
  retry(): Promise<Frame> {
    return this.ask("user.retry", {});
  }

  /** Sends any `user.*` event under an id until it is answered, so it happens once. */
  ask(event: string, fields: Partial<Frame>, id = newId()): Promise<Frame> {
    const frame: Frame = { ...fields, event, command_id: id };
    if (this.thread !== undefined) frame.session_id = this.thread.session;
    return this.pending.ask(frame, id, (ready) => {
      if (this.resumeId === undefined) this.line.send(ready);
    });
  }

  /** Lets go of the session; what runs goes on without us. */
  close(): void {
    this.line.stop();
    this.over(undefined);
  }

  /** The first words on a new line: resume if there is something to resume, else what is waiting. */
  private greet(): void {
    if (this.thread === undefined) return this.sendAgain();
    const { epoch, seq } = this.thread.cursor;
    this.resumeId = newId();
    const { language } = this.settings;
    const cursor = epoch === "" ? { last_seq: seq } : { last_seq: seq, epoch };
    this.line.send({
      event: "user.reconnect",
      session_id: this.thread.session,
      command_id: this.resumeId,
      content: language === undefined ? cursor : { ...cursor, preferences: { language } },
    });
  }

  private sendAgain(): void {
    for (const frame of this.pending.frames()) this.line.send(frame);
  }

  private take(event: Frame): void {
    const answered = answers(event);
    if (answered !== undefined && answered === this.resumeId) {
      this.resumeId = undefined;
      return this.resumed(event);
    }
    if (this.thread === undefined && answered !== undefined && event.session_id !== undefined) {
      this.thread = new Thread(event.session_id);
      this.established();
    }
    const heard = this.thread?.hear(event) ?? { is: "new" };
    // Settled even if told before: the answer to a repeated command is a repeat.
    this.pending.settle(event);
    if (event.metadata?.["action"] === "shutdown") {
      this.line.comeBack(Number(event.metadata["retry_after_ms"] ?? 0));
    }
    if (heard.is === "new") this.tell(event);
    else if (heard.is === "other_epoch") this.line.drop("the history was replaced");
    else if (heard.is === "torn") this.torn(event, heard.to);
  }

  /** A frame before this one never came. Once it is asked for again; then it is a gap. */
  private torn(event: Frame, to: number): void {
    const thread = this.thread;
    if (thread === undefined) return;
    if (this.tornAt !== thread.cursor.seq) {
      this.tornAt = thread.cursor.seq;
      return this.line.drop(`frames up to ${to} are missing`);
    }
    this.tell(thread.giveUp(to, "missing").toEvent(thread.session));
    thread.hear(event);
    this.tell(event);
  }

  private resumed(event: Frame): void {
    if (isRefusal(event)) {
      if (this.opened === undefined) this.tell(event);
      this.line.stop();
      return this.over(new Rejected(event));
    }
    const fault = this.thread?.resumed(event);
    if (fault !== undefined) this.tell(fault.toEvent(this.id));
    this.established();
    this.tell(event);
    this.sendAgain();
  }

  private established(): void {
    this.line.established();
    this.opened?.resolve();
    this.opened = undefined;
  }

  private lost(fault: Fault, wasEstablished: boolean): void {
    this.resumeId = undefined;
    if (!wasEstablished || this.thread === undefined) return;
    const facts = { ...fault.facts, last_event_seq: this.thread.cursor.seq };
    this.tell(new Fault(fault.kind, fault.message, facts).toEvent(this.id));
  }

  private tell(event: Frame): void {
    this.queue.push({ event, cursor: this.thread?.cursor ?? this.taken });
    if (this.queue.length > this.settings.backlog) this.line.pause();
  }

  /** Nothing more will come. */
  private over(error: unknown): void {
    const reason = error ?? new Fault("connection_lost", "The session was closed on this side.");
    this.pending.fail(reason);
    this.opened?.reject(reason);
    this.opened = undefined;
    this.queue.end(error);
  }
}
