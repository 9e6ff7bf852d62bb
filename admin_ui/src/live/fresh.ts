/** Which answers a change makes old, and reading those that are on the page again. */
import type { Query, QueryClient } from "@tanstack/react-query";
import { SESSION } from "../session/door";
import type { Change } from "./feed";
import { isLeft } from "./leaving";

const WAIT_MS = 300; // changes come in swarms
const LEAST_MS = 1_000; // between two rounds

/** `meta` of a query that is read again for these kinds only, which may be none; without it the rules below hold. */
export const of = (...kinds: string[]) => ({ kinds });

const BY_FIRST: Record<string, (change: Change) => boolean> = {
  tenants: (change) => change.kind === "tenant" || change.kind === "limits",
  replicas: (change) => change.kind === "replica",
  audit: (change) => change.kind !== "move",
  billing: (change) => change.kind === "billing",
  "price-books": (change) => change.kind === "price_book",
  "price-choice": (change) => change.kind === "price_book",
  store: (change) => change.kind === "store",
};

/** What is of a tenant has its id behind `tenant` in its key. */
function touches(change: Change, query: Pick<Query, "queryKey" | "meta">): boolean {
  const [first, tenant] = query.queryKey;
  if (isLeft(query.queryKey)) {
    return false;
  }
  const kinds = query.meta?.kinds as string[] | undefined;
  if (first === "tenant" && tenant !== change.tenant) {
    return false;
  }
  if (kinds !== undefined) {
    return kinds.includes(change.kind);
  }
  if (first === "tenant") {
    return change.kind !== "placement"; // adapters move all the time
  }
  return BY_FIRST[String(first)]?.(change) ?? false;
}

/** Takes changes in, and has what they touch read again, many of them in one round. */
export class Freshening {
  private waiting: Change[] = [];
  private timer: number | undefined;
  private last = 0;

  constructor(private readonly queries: QueryClient) {}

  take(change: Change): void {
    this.waiting.push(change);
    if (this.timer === undefined) {
      const wait = Math.max(WAIT_MS, this.last + LEAST_MS - Date.now());
      this.timer = window.setTimeout(() => this.flush(), wait);
    }
  }

  all(): void {
    void this.queries.invalidateQueries({
      predicate: ({ queryKey }) => queryKey[0] !== SESSION[0] && !isLeft(queryKey),
    });
  }

  stop(): void {
    window.clearTimeout(this.timer);
    this.timer = undefined;
  }

  private flush(): void {
    const changes = this.waiting;
    this.waiting = [];
    this.timer = undefined;
    this.last = Date.now();
    void this.queries.invalidateQueries({
      predicate: (query) => changes.some((change) => touches(change, query)),
    });
  }
}
