// What this browser keeps for us. A browser may forbid it or be full: then nothing is kept and the page goes on.

/** False after something could not be kept. */
export let isKept = true;

/** What is kept under a name; undefined if nothing is, or if we may not look. */
export function kept(name, store = "localStorage") {
  try {
    return globalThis[store].getItem(name) ?? undefined;
  } catch {
    isKept = false;
    return undefined;
  }
}

/** Keeps a text, or forgets it if it is empty. Returns whether that worked. */
export function keep(name, value, store = "localStorage") {
  try {
    if (value === undefined || value === "") globalThis[store].removeItem(name);
    else globalThis[store].setItem(name, value);
    return true;
  } catch {
    isKept = false;
    return false;
  }
}
