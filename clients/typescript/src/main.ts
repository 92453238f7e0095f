// The package in Node: the client, tools, workers and the bundled server. Bundlers for browsers take index.ts.

import { WebSocket as NodeWebSocket } from "ws";

import { Client as PlainClient, type ClientOptions, type SocketConstructor } from "./client.js";

export * from "./index.js";
export { findProgram } from "./program.js";
export { serve, type ServeOptions, type Server } from "./server.js";
export {
  tool,
  Tool,
  ToolError,
  type CallProgress,
  type JsonSchema,
  type Reconciliation,
  type ToolContext,
  type ToolOptions,
} from "./tool.js";
export { Worker, type WorkerOptions } from "./worker.js";

/** A server by its address. In Node the WebSocket is that of the package `ws`, unless another one is passed. */
export class Client extends PlainClient {
  constructor(url: string, options: ClientOptions = {}) {
    super(url, { WebSocket: NodeWebSocket as unknown as SocketConstructor, ...options });
  }
}
