// Where to connect, as whom, and how patiently.

import { Session } from "./session.js";
import type { Cursor } from "./thread.js";

/** The part of a WebSocket that is used: a browser's, Node's own, or that of the package `ws`. */
export interface SocketLike {
  readonly readyState: number;
  send(data: string): void;
  close(code?: number, reason?: string): void;
  onopen: ((event: never) => unknown) | null;
  onmessage: ((event: never) => unknown) | null;
  onclose: ((event: never) => unknown) | null;
  onerror: ((event: never) => unknown) | null;
}

export type SocketConstructor = new (url: string, protocols?: string[]) => SocketLike;

export interface ClientOptions {
  /** Signs in with this. */
  token?: string;
  /** The language to be spoken to in, whatever a session is set to: `en`, `zh`. */
  language?: string;
  /** The WebSocket to use where there is none by itself. */
  WebSocket?: SocketConstructor;
  /** Waits between tries: the first, the longest (both in milliseconds), and how many tries; 250, 30 000, 1000. */
  retry?: { base?: number; max?: number; tries?: number };
  /** How long a line may be silent before it counts as lost, in milliseconds; 40 000. */
  silence?: number;
  /** How long to wait for the answer to a command over all reconnects, in milliseconds; 120 000. */
  reply?: number;
  /** Events that wait for their reader before the line is let go until there is room; 10 000. */
  backlog?: number;
}

export interface CreateOptions {
  /** The language of what people read: `en`, `zh`. */
  language?: string;
  /** More of `user.create_session`'s content. */
  [more: string]: unknown;
}

/** Every option with its value. */
export interface Settings {
  url: string;
  token: string | undefined;
  language: string | undefined;
  WebSocket: SocketConstructor;
  base: number;
  max: number;
  tries: number;
  silence: number;
  reply: number;
  backlog: number;
}

export class Client {
  private readonly settings: Settings;

  /** A server by its address: `ws://127.0.0.1:7333/ws`. */
  constructor(url: string, options: ClientOptions = {}) {
    const found = options.WebSocket ?? (globalThis as { WebSocket?: SocketConstructor }).WebSocket;
    if (found === undefined) {
      throw new TypeError("no WebSocket here: pass one as the option `WebSocket`");
    }
    this.settings = {
      url,
      token: options.token,
      language: options.language,
      WebSocket: found,
      base: options.retry?.base ?? 250,
      max: options.retry?.max ?? 30_000,
      tries: options.retry?.tries ?? 1000,
      silence: options.silence ?? 40_000,
      reply: options.reply ?? 120_000,
      backlog: options.backlog ?? 10_000,
    };
  }

  /** Opens a new session; it is durable on the server when the promise is kept. */
  async create(options: CreateOptions = {}): Promise<Session> {
    const { language, ...more } = options;
    const content = language === undefined ? more : { ...more, preferences: { language } };
    const session = new Session(this.settings);
    await session.ask("user.create_session", { content });
    return session;
  }

  /** Resumes a session after `cursor`, or from its beginning. */
  async attach(sessionId: string, cursor?: Cursor): Promise<Session> {
    const session = new Session(this.settings, sessionId, cursor);
    await session.ready;
    return session;
  }
}
