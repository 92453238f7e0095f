// Made from clients/typescript/src by scripts/page.mjs. Do not edit.
// Events between the line and their reader. There is one reader.
/** A queue that ends, well or with an error. */
export class Queue {
    onTaken;
    items = [];
    waiting;
    ended = false;
    error;
    constructor(onTaken) {
        this.onTaken = onTaken;
    }
    get length() {
        return this.items.length;
    }
    push(item) {
        if (this.ended)
            return;
        this.items.push(item);
        this.wake();
    }
    /** What is queued is still given out; then comes the end, or the error. */
    end(error) {
        if (this.ended)
            return;
        this.ended = true;
        this.error = error;
        this.wake();
    }
    /** The next item; undefined at the end. */
    async next() {
        while (this.items.length === 0) {
            if (this.ended) {
                if (this.error !== undefined)
                    throw this.error;
                return undefined;
            }
            await new Promise((resolve) => {
                this.waiting = resolve;
            });
        }
        const item = this.items.shift();
        this.onTaken(this.items.length);
        return item;
    }
    wake() {
        this.waiting?.();
        this.waiting = undefined;
    }
}
