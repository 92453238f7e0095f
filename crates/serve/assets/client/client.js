// Made from clients/typescript/src by scripts/page.mjs. Do not edit.
// Where to connect, as whom, and how patiently.
import { Session } from "./session.js";
export class Client {
    settings;
    /** A server by its address: `ws://127.0.0.1:7333/ws`. */
    constructor(url, options = {}) {
        const found = options.WebSocket ?? globalThis.WebSocket;
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
    async create(options = {}) {
        const { language, ...more } = options;
        const content = language === undefined ? more : { ...more, preferences: { language } };
        const session = new Session(this.settings);
        await session.ask("user.create_session", { content });
        return session;
    }
    /** Resumes a session after `cursor`, or from its beginning. */
    async attach(sessionId, cursor) {
        const session = new Session(this.settings, sessionId, cursor);
        await session.ready;
        return session;
    }
}
