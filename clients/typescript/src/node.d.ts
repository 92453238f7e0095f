// The few names of Node and of `ws` that the sources use, so that they compile without the types of others.

declare module "ws" {
  export const WebSocket: unknown;
}

declare module "node:module" {
  export function createRequire(from: string): { resolve(name: string): string };
}

declare module "node:path" {
  const path: { join(...parts: string[]): string; resolve(...parts: string[]): string };
  export default path;
}

declare module "node:os" {
  const os: { tmpdir(): string };
  export default os;
}

declare module "node:fs" {
  const fs: {
    mkdtempSync(prefix: string): string;
    mkdirSync(path: string, options: { recursive: boolean }): void;
    openSync(path: string, flags: string): number;
    closeSync(file: number): void;
    readFileSync(path: string, encoding: "utf8"): string;
  };
  export default fs;
}

declare module "node:crypto" {
  export function randomBytes(count: number): { toString(encoding: "base64url"): string };
}

declare module "node:child_process" {
  interface Stream {
    on(event: "data", listener: (bytes: Uint8Array) => void): unknown;
  }
  interface Child {
    readonly pid: number | undefined;
    readonly stdin: Stream;
    readonly stdout: Stream;
    kill(signal: string): void;
    ref(): void;
    unref(): void;
    once(event: "exit", listener: (code: number | null) => void): Child;
    once(event: "error", listener: (error: unknown) => void): Child;
  }
  export function spawn(program: string, args: string[], options: unknown): Child;
}

declare const process: {
  readonly env: Record<string, string | undefined>;
  readonly argv: readonly string[];
  readonly platform: string;
  readonly arch: string;
  cwd(): string;
};
