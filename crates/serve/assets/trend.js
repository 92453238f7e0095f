// Whether faults of a kind become more or fewer. Pure.

/** Is it getting better? The latest quarter of the window against the one before. */
export function trendOf(buckets, kind) {
  const counts = buckets.map(({ by_kind: byKind }) => byKind[kind] ?? 0);
  const quarter = Math.max(1, Math.floor(counts.length / 4));
  const sum = (list) => list.reduce((all, n) => all + n, 0);
  const late = sum(counts.slice(-quarter));
  const early = sum(counts.slice(-2 * quarter, -quarter));
  const isNew = late > 0 && sum(counts.slice(0, -quarter)) === 0;
  const name = isNew ? "trend-new" : late === 0 ? "trend-over" : late > early * 1.2 ? "trend-worse" : late < early * 0.8 ? "trend-better" : "trend-steady";
  return { name, late, early, counts };
}
