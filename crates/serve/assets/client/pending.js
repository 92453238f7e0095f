// Made from clients/typescript/src by scripts/page.mjs. Do not edit.
// Commands without an answer. They keep their ids and their order across reconnects.
import { answers, isRefusal } from "./event.js";
import { Fault, Rejected } from "./fault.js";
export class Pending {
    reply;
    commands = new Map();
    /** `reply` is how long a command waits for its answer, in milliseconds; without it, as long as the line tries. */
    constructor(reply) {
        this.reply = reply;
    }
    get size() {
        return this.commands.size;
    }
    /** Sends a command and waits for its answer. */
    ask(frame, id, send) {
        return new Promise((resolve, reject) => {
            const timer = this.reply === undefined ? undefined : setTimeout(() => this.late(id), this.reply);
            const done = (settle) => (value) => {
                clearTimeout(timer);
                settle(value);
            };
            this.commands.set(id, { frame, resolve: done(resolve), reject: done(reject) });
            send(frame);
        });
    }
    /** The frames to send again, oldest first. */
    frames() {
        return [...this.commands.values()].map((command) => command.frame);
    }
    /** Passes an answer to the command that it names, if that still waits. */
    settle(event) {
        const id = answers(event);
        const command = id === undefined ? undefined : this.commands.get(id);
        if (id === undefined || command === undefined)
            return;
        this.commands.delete(id);
        if (isRefusal(event))
            command.reject(new Rejected(event));
        else
            command.resolve(event);
    }
    fail(error) {
        for (const command of this.commands.values())
            command.reject(error);
        this.commands.clear();
    }
    late(id) {
        const command = this.commands.get(id);
        this.commands.delete(id);
        const facts = { timeout_ms: this.reply };
        command?.reject(new Fault("request_timed_out", `No answer to ${command.frame.event} in time.`, facts));
    }
}
export function newId() {
    return globalThis.crypto.randomUUID();
}
