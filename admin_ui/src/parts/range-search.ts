export const RANGES = ["1h", "6h", "24h", "7d", "30d"] as const;
export type Range = (typeof RANGES)[number];

/** As an address has it: so far back, or from one moment to another. */
export interface RangeSearch {
  range?: Range;
  since?: string;
  until?: string;
}

const SOON_MS = 15_000;
const LATER_MS = 60_000;

export function rangeSearch(search: Record<string, unknown>): RangeSearch {
  const since = momentOf(search.since);
  return {
    range: since === undefined ? RANGES.find((one) => one === search.range) : undefined,
    since,
    until: since === undefined ? undefined : momentOf(search.until),
  };
}

export function rangeQuery({ range, since, until }: RangeSearch) {
  return since === undefined ? { window: range ?? "1h" } : { since, until: until ?? null };
}

export function rangeText(search: RangeSearch): string {
  const query = rangeQuery(search);
  return new URLSearchParams(
    Object.entries(query).filter((pair): pair is [string, string] => typeof pair[1] === "string"),
  ).toString();
}

/** How often it is looked at anew; what is over doesn't change. */
export function rangeLookMs({ range, until }: RangeSearch): number | false {
  if (until !== undefined && new Date(until) < new Date()) {
    return false;
  }
  return range === "7d" || range === "30d" ? LATER_MS : SOON_MS;
}

export function momentOf(value: unknown): string | undefined {
  return typeof value === "string" && !Number.isNaN(Date.parse(value)) ? value : undefined;
}
