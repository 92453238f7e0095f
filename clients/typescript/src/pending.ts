// Commands without an answer. They keep their ids and their order across reconnects.

import { answers, type Frame, isRefusal } from "./event.js";
import { Fault, Rejected } from "./fault.js";

interface Command {
  frame: Frame;
  resolve: (event: Frame) => void;
  reject: (error: unknown) => void;
}

export class Pending {
  private readonly commands = new Map<string, Command>();

  /** `reply` is how long a command waits for its answer, in milliseconds; without it, as long as the line tries. */
  constructor(private readonly reply: number | undefined) {}

  get size(): number {
    return this.commands.size;
  }

  /** Sends a command and waits for its answer. */
  ask(frame: Frame, id: string, send: (frame: Frame) => void): Promise<Frame> {
    return new Promise((resolve, reject) => {
      const timer = this.reply === undefined ? undefined : setTimeout(() => this.late(id), this.reply);
      const done = <T>(settle: (value: T) => void) => (value: T) => {
        clearTimeout(timer);
        settle(value);
      };
      this.commands.set(id, { frame, resolve: done(resolve), reject: done(reject) });
      send(frame);
    });
  }

  /** The frames to send again, oldest first. */
  frames(): Frame[] {
    return [...this.commands.values()].map((command) => command.frame);
  }

  /** Passes an answer to the command that it names, if that still waits. */
  settle(event: Frame): void {
    const id = answers(event);
    const command = id === undefined ? undefined : this.commands.get(id);
    if (id === undefined || command === undefined) return;
    this.commands.delete(id);
    if (isRefusal(event)) command.reject(new Rejected(event));
    else command.resolve(event);
  }

  fail(error: unknown): void {
    for (const command of this.commands.values()) command.reject(error);
    this.commands.clear();
  }

  private late(id: string): void {
    const command = this.commands.get(id);
    this.commands.delete(id);
    const facts = { timeout_ms: this.reply };
    command?.reject(new Fault("request_timed_out", `No answer to ${command.frame.event} in time.`, facts));
  }
}

export function newId(): string {
  return globalThis.crypto.randomUUID();
}
