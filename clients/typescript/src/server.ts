// Starts the bundled server, for scripts and tests in Node.

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

import { findProgram } from "./program.js";

export interface ServeOptions {
  /** The model of `budao serve`; `demo`. */
  model?: string;
  /** The folder of the journal; a temporary one. */
  folder?: string;
  /** `approval`, `auto` or `readonly`. */
  permission?: string;
  /** More arguments of `budao serve`. */
  args?: string[];
}

/** A running server. It ends with `stop` and with this process. */
export interface Server {
  url: string;
  token: string;
  /** The web page, with the token. */
  page: string;
  folder: string;
  pid: number;
  stop(): Promise<void>;
}

/** Starts the server and gives it when it listens. */
export async function serve(options: ServeOptions = {}): Promise<Server> {
  const folder = options.folder ?? fs.mkdtempSync(path.join(os.tmpdir(), "budao-"));
  fs.mkdirSync(folder, { recursive: true });
  const token = randomBytes(24).toString("base64url");
  const args = ["serve", "--listen", "127.0.0.1:0", "--journal", path.join(folder, "journal.db"), "--exit-with-stdin"];
  args.push("--model", options.model ?? "demo", "--permission", options.permission ?? "approval", ...(options.args ?? []));
  const log = fs.openSync(path.join(folder, "server.log"), "a");
  const child = spawn(findProgram(), args, { stdio: ["pipe", "pipe", log], env: { ...process.env, BUDAO_TOKEN: token } });
  fs.closeSync(log);
  const ended = new Promise<number | null>((resolve, reject) => child.once("exit", resolve).once("error", reject));
  const address = await new Promise<string>((resolve, reject) => {
    let said = "";
    child.stdout.on("data", (bytes: Uint8Array) => {
      said += bytes;
      const found = /http:\/\/(127\.0\.0\.1:\d+)/.exec(said)?.[1];
      if (found !== undefined) resolve(found);
    });
    ended.then((code) => {
      const tail = fs.readFileSync(path.join(folder, "server.log"), "utf8").slice(-2000);
      reject(new Error(`budao serve ended with ${code}:\n${said}${tail}`));
    }, reject);
  });
  // The server must not keep the program alive: its end closes the server's input.
  child.unref();
  for (const stream of [child.stdin, child.stdout]) (stream as unknown as { unref(): void }).unref();
  const stop = async (): Promise<void> => {
    child.ref();
    child.kill("SIGTERM");
    await ended;
  };
  return { url: `ws://${address}/ws`, token, page: `http://${address}/#token=${token}`, folder, pid: child.pid ?? 0, stop };
}
