// Events between the line and their reader. There is one reader.

/** A queue that ends, well or with an error. */
export class Queue<T> {
  private items: T[] = [];
  private waiting: (() => void) | undefined;
  private ended = false;
  private error: unknown;

  constructor(private readonly onTaken: (left: number) => void) {}

  get length(): number {
    return this.items.length;
  }

  push(item: T): void {
    if (this.ended) return;
    this.items.push(item);
    this.wake();
  }

  /** What is queued is still given out; then comes the end, or the error. */
  end(error?: unknown): void {
    if (this.ended) return;
    this.ended = true;
    this.error = error;
    this.wake();
  }

  /** The next item; undefined at the end. */
  async next(): Promise<T | undefined> {
    while (this.items.length === 0) {
      if (this.ended) {
        if (this.error !== undefined) throw this.error;
        return undefined;
      }
      await new Promise<void>((resolve) => {
        this.waiting = resolve;
      });
    }
    const item = this.items.shift();
    this.onTaken(this.items.length);
    return item;
  }

  private wake(): void {
    this.waiting?.();
    this.waiting = undefined;
  }
}
