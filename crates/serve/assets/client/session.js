// Made from clients/typescript/src by scripts/page.mjs. Do not edit.
// A session as its user holds it: it asks, and it tells. Between the two is a line that may come and go.
import { answers, isRefusal } from "./event.js";
import { Fault, Rejected, TurnCancelled, TurnFailed } from "./fault.js";
import { Line } from "./line.js";
import { newId, Pending } from "./pending.js";
import { Queue } from "./queue.js";
import { Thread } from "./thread.js";
/** The events that end a run. */
const ENDS = new Set(["agent.final_answer", "agent.interrupted", "agent.error"]);
export class Session {
    settings;
    /** Kept when the server knows the session on this line for the first time. */
    ready;
    line;
    queue;
    pending;
    decided = new Set();
    thread;
    taken;
    resumeId;
    tornAt = -1;
    opened;
    /** Use {@link Client.create} and {@link Client.attach}. */
    constructor(settings, sessionId, cursor = { epoch: "", seq: 0 }) {
        this.settings = settings;
        this.taken = cursor;
        this.pending = new Pending(settings.reply);
        this.thread = sessionId === undefined ? undefined : new Thread(sessionId, cursor);
        this.ready = new Promise((resolve, reject) => {
            this.opened = { resolve, reject };
        });
        // The caller of `create` gets the failure from there.
        this.ready.catch(() => { });
        this.queue = new Queue((left) => {
            if (left <= settings.backlog / 2)
                this.line.goOn();
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
    get id() {
        return this.thread?.session ?? "";
    }
    /** Where the last event that `events()` gave stands: keep it to come back later. */
    get cursor() {
        return { ...this.taken };
    }
    /** Past events first, then new ones, each once, in order. What this side makes carries a `fault`. */
    async *events() {
        for (;;) {
            const item = await this.queue.next();
            if (item === undefined)
                return;
            this.taken = item.cursor;
            yield item.event;
        }
    }
    /** Sends a message and gives the events up to the end of its run, which is the last one. */
    async *stream(text, options = {}) {
        const id = newId();
        await this.ask("user.message", { content: text }, id);
        for await (const event of this.events()) {
            if (event.fault !== undefined && event.fault.kind !== "connection_lost")
                throw event.fault;
            options.onEvent?.(event);
            yield event;
            if (event.event === "agent.user_confirm")
                await this.decide(event, options.approve);
            if (ENDS.has(event.event) && event.metadata?.["command_id"] === id)
                return;
        }
        throw new Fault("connection_lost", "The session was closed on this side.");
    }
    /** Sends a message and gives its answer. Throws {@link TurnFailed} or {@link TurnCancelled}. */
    async run(text, options = {}) {
        let last;
        for await (const event of this.stream(text, options))
            last = event;
        if (last?.event === "agent.final_answer")
            return last;
        if (last?.event === "agent.error")
            throw new TurnFailed(last);
        throw new TurnCancelled(last?.show_content ?? "The run was cancelled.");
    }
    /** Asks the program once for each question. */
    async decide(question, approve) {
        const { step_id: step } = question;
        if (step === undefined || step === null || this.decided.has(step))
            return;
        this.decided.add(step);
        const decided = approve === undefined ? false : await approve(question);
        const decision = typeof decided === "boolean" ? { confirmed: decided } : decided;
        const digest = question.metadata?.["digest"];
        try {
            await this.ask("user.response", { step_id: step, content: { ...decision, digest } });
        }
        catch (error) {
            // Another client was faster, or the run has ended.
            if (!(error instanceof Rejected))
                throw error;
        }
    }
    /** Sends a message: durable when the promise is kept, and answered whatever happens to the line. */
    send(text) {
        return this.ask("user.message", { content: text });
    }
    /** Answers the question that carried this `step_id`. */
    answer(stepId, decision) {
        return this.ask("user.response", { step_id: stepId, content: decision });
    }
    /** Stops what runs; the session can be used on. */
    cancel() {
        return this.ask("user.cancel", {});
    }
    /** Says what became of a call whose outcome is unknown; the first settlement counts. */
    settleDoubt(callId, outcome, result) {
        const content = { call_id: callId, outcome, ...(result === undefined ? {} : { result }) };
        return this.ask("user.settle_doubt", { content });
    }
    /** Takes back a message that waits for its turn; the answer to `send` names it in `metadata.command_id`. */
    withdraw(commandId) {
        return this.ask("user.withdraw", { content: { message: commandId } });
    }
    /** Continues the last turn, which failed, from where it stood; calls that ended are not made again. */
    retry() {
        return this.ask("user.retry", {});
    }
    /** Sends any `user.*` event under an id until it is answered, so it happens once. */
    ask(event, fields, id = newId()) {
        const frame = { ...fields, event, command_id: id };
        if (this.thread !== undefined)
            frame.session_id = this.thread.session;
        return this.pending.ask(frame, id, (ready) => {
            if (this.resumeId === undefined)
                this.line.send(ready);
        });
    }
    /** Lets go of the session; what runs goes on without us. */
    close() {
        this.line.stop();
        this.over(undefined);
    }
    /** The first words on a new line: resume if there is something to resume, else what is waiting. */
    greet() {
        if (this.thread === undefined)
            return this.sendAgain();
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
    sendAgain() {
        for (const frame of this.pending.frames())
            this.line.send(frame);
    }
    take(event) {
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
        if (heard.is === "new")
            this.tell(event);
        else if (heard.is === "other_epoch")
            this.line.drop("the history was replaced");
        else if (heard.is === "torn")
            this.torn(event, heard.to);
    }
    /** A frame before this one never came. Once it is asked for again; then it is a gap. */
    torn(event, to) {
        const thread = this.thread;
        if (thread === undefined)
            return;
        if (this.tornAt !== thread.cursor.seq) {
            this.tornAt = thread.cursor.seq;
            return this.line.drop(`frames up to ${to} are missing`);
        }
        this.tell(thread.giveUp(to, "missing").toEvent(thread.session));
        thread.hear(event);
        this.tell(event);
    }
    resumed(event) {
        if (isRefusal(event)) {
            if (this.opened === undefined)
                this.tell(event);
            this.line.stop();
            return this.over(new Rejected(event));
        }
        const fault = this.thread?.resumed(event);
        if (fault !== undefined)
            this.tell(fault.toEvent(this.id));
        this.established();
        this.tell(event);
        this.sendAgain();
    }
    established() {
        this.line.established();
        this.opened?.resolve();
        this.opened = undefined;
    }
    lost(fault, wasEstablished) {
        this.resumeId = undefined;
        if (!wasEstablished || this.thread === undefined)
            return;
        const facts = { ...fault.facts, last_event_seq: this.thread.cursor.seq };
        this.tell(new Fault(fault.kind, fault.message, facts).toEvent(this.id));
    }
    tell(event) {
        this.queue.push({ event, cursor: this.thread?.cursor ?? this.taken });
        if (this.queue.length > this.settings.backlog)
            this.line.pause();
    }
    /** Nothing more will come. */
    over(error) {
        const reason = error ?? new Fault("connection_lost", "The session was closed on this side.");
        this.pending.fail(reason);
        this.opened?.reject(reason);
        this.opened = undefined;
        this.queue.end(error);
    }
}
