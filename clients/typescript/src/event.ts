// One event as it arrives. Names and payloads are in protocol.ts, which is made from the server's schema.

import type { Fault } from "./fault.js";
import type { Outbound } from "./protocol.js";

/**
 * An event of a session: comparing `event` with a name gives the type of its content and metadata. Set on what this
 * side made, `fault` says that the line was lost, or that a part of the history cannot be had. A newer server may send
 * events that are not in this list: leave those be.
 */
export type SessionEvent = Outbound & { fault?: Fault };

/** What every event has in common, as the client itself looks at it. */
export interface Frame {
  event: string;
  session_id?: string;
  /** Its position in the session's history; absent on what is not part of it. */
  seq?: number;
  /** The position of the frame before it, as this observer was sent them. */
  prev?: number;
  epoch?: string;
  event_id?: string;
  command_id?: string;
  step_id?: string | null;
  timestamp?: string;
  content?: unknown;
  metadata?: Record<string, unknown>;
  show_content?: string;
  fault?: Fault;
  [more: string]: unknown;
}

/**
 * The command an event answers. What a run tells names its command too, but has a place in the history; only the
 * opening of a session is both.
 */
export function answers(event: Frame): string | undefined {
  if (event.seq !== undefined && event.event !== "agent.session_created") return undefined;
  const named = event.command_id ?? event.metadata?.["command_id"];
  return typeof named === "string" ? named : undefined;
}

export function isRefusal(event: Frame): boolean {
  return event.event.startsWith("error.") || event.event === "system.error";
}

/** The event in a text frame; undefined if it is none. */
export function parse(data: unknown): Frame | undefined {
  try {
    const value: unknown = JSON.parse(String(data));
    const isEvent = typeof value === "object" && value !== null && "event" in value;
    return isEvent && typeof value.event === "string" ? (value as Frame) : undefined;
  } catch {
    return undefined;
  }
}
