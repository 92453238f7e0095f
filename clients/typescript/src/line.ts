// The line: one socket after the other, with a growing wait between them.

import type { Settings, SocketLike } from "./client.js";
import { parse, type Frame } from "./event.js";
import { Fault } from "./fault.js";

/** What the line tells its owner. */
export interface Ears {
  open(): void;
  event(event: Frame): void;
  lost(fault: Fault, wasEstablished: boolean): void;
  /** It will not come back. */
  over(error: unknown): void;
}

/** Close codes after which coming back makes sense: broken, failed, restarting, busy, too slow, too much at once. */
const RESUMABLE = new Set([1001, 1005, 1006, 1011, 1012, 1013, 4408, 4429]);

const OPEN = 1;

/** How long the reason of a refusal is asked for, in milliseconds: it must not delay the next try. */
const PROBE = 2000;

export class Line {
  private socket: SocketLike | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private attempt = 0;
  private isEstablished = false;
  private openedAt = 0;
  private comeBackAfter = 0;
  private state: "running" | "paused" | "stopped" = "running";

  constructor(
    private readonly settings: Settings,
    private readonly ears: Ears,
  ) {}

  start(): void {
    let refusal: number | undefined;
    let hasOpened = false;
    const { url, token, WebSocket } = this.settings;
    const protocols = token === undefined ? undefined : ["budao.v1", `bearer.${token}`];
    const socket = protocols === undefined ? new WebSocket(url) : new WebSocket(url, protocols);
    this.socket = socket;
    this.isEstablished = false;
    this.openedAt = Date.now();
    socket.onopen = () => {
      hasOpened = true;
      this.watch();
      this.ears.open();
    };
    socket.onmessage = (message: { data: unknown }) => {
      if (this.socket !== socket) return;
      this.watch();
      const event = parse(message.data);
      if (event !== undefined) this.ears.event(event);
    };
    // An error is always followed by a close, which says more; only the package `ws` names the status of a refused upgrade.
    socket.onerror = (error: { message?: string }) => {
      const message = error?.message ?? "";
      // 0: the socket says why it failed, and it was no answer of the server.
      if (message !== "") refusal = Number(/server response: (\d{3})/.exec(message)?.[1] ?? 0);
    };
    socket.onclose = (end: { code?: number; reason?: string }) => {
      if (this.socket !== socket) return;
      const close = () => this.ended(end.code ?? 1006, end.reason ?? "");
      if (hasOpened || !RESUMABLE.has(end.code ?? 1006)) return close();
      void this.reasonOfRefusal(refusal).then((fault) => {
        if (this.socket !== socket) return;
        if (fault === undefined) close();
        else this.refused(fault);
      });
    };
    this.watch();
  }

  /** Sends if there is a line; what is not sent is sent again after the next greeting. */
  send(frame: Frame): void {
    if (this.socket?.readyState === OPEN) this.socket.send(JSON.stringify(frame));
  }

  /** The server knows us on this line: the next loss starts counting anew. */
  established(): void {
    this.isEstablished = true;
    this.attempt = 0;
  }

  /** The server stops and says when it is back. */
  comeBack(ms: number): void {
    this.comeBackAfter = ms;
  }

  /** Gives the socket up and comes back. */
  drop(reason: string): void {
    this.ended(1006, reason);
  }

  /** Lets go of the line until its reader has caught up. */
  pause(): void {
    if (this.state !== "running") return;
    this.state = "paused";
    this.release();
  }

  /** The reader has caught up. */
  goOn(): void {
    if (this.state !== "paused") return;
    this.state = "running";
    this.start();
  }

  stop(): void {
    this.state = "stopped";
    this.release();
  }

  private watch(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.drop("no data received for too long"), this.settings.silence);
  }

  private release(): void {
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = undefined;
    socket?.close();
  }

  /**
   * Why a socket never opened: the fault if another token is needed, undefined if another try may help. Browsers hide the
   * status of a refused upgrade, so the server is asked once more over HTTP.
   */
  private async reasonOfRefusal(status: number | undefined): Promise<Fault | undefined> {
    const found = status ?? (await this.statusOverHttp());
    if (found === 401) return new Fault("not_authenticated", "The server does not accept this token.", { status: found });
    if (found === 403) return new Fault("not_allowed", "The server does not allow this connection.", { status: found });
    return undefined;
  }

  private async statusOverHttp(): Promise<number | undefined> {
    const { url, token } = this.settings;
    try {
      const address = new URL("v1/sessions?limit=1", url.replace(/^ws/, "http"));
      const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
      const signal = AbortSignal.timeout(Math.min(this.settings.silence, PROBE));
      return (await fetch(address, { headers, signal })).status;
    } catch {
      return undefined;
    }
  }

  /** Another try would end in the same way. */
  private refused(fault: Fault): void {
    this.release();
    this.state = "stopped";
    this.ears.over(fault);
  }

  private ended(code: number, reason: string): void {
    this.release();
    const facts = { close_code: code, close_reason: reason, uptime_ms: Date.now() - this.openedAt };
    const fault = new Fault("connection_lost", "The connection was lost.", facts);
    this.ears.lost(fault, this.isEstablished);
    if (this.state !== "running") return;
    this.attempt += 1;
    if (!RESUMABLE.has(code) || this.attempt >= this.settings.tries) {
      this.state = "stopped";
      return this.ears.over(fault);
    }
    this.timer = setTimeout(() => this.start(), Math.max(this.wait(), this.comeBackAfter));
    this.comeBackAfter = 0;
  }

  /** base · 2^(attempt − 1), jittered by a tenth, between base and max: the server's own rule. */
  private wait(): number {
    const { base, max } = this.settings;
    const plain = base * 2 ** Math.min(this.attempt - 1, 30);
    const jittered = plain * (1 + 0.1 * (2 * Math.random() - 1));
    return Math.min(Math.max(jittered, base), max);
  }
}
