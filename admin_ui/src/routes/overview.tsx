import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import type { Outcome } from "../pages/requests";
import { type RangeSearch, rangeSearch } from "../parts/range-search";
import { inside, tenant, text } from "./frame";

interface OverviewSearch extends RangeSearch {
  by?: "adapter";
}

const overview = createRoute({
  getParentRoute: () => inside,
  path: "/overview",
  validateSearch: (search: Record<string, unknown>): OverviewSearch => ({
    ...rangeSearch(search),
    by: search.by === "adapter" ? "adapter" : undefined,
  }),
  component: lazyRouteComponent(() => import("../pages/overview"), "OverviewPage"),
});

export interface RequestsSearch extends RangeSearch {
  outcome?: Outcome;
  adapter?: string;
  key?: string;
  code?: string;
  slow_ms?: number;
  cursor?: string;
}

const OUTCOMES: readonly Outcome[] = ["served", "cached", "replayed", "refused", "failed", "client_left"];

const requests = createRoute({
  getParentRoute: () => tenant,
  path: "/requests",
  validateSearch: (search: Record<string, unknown>): RequestsSearch => ({
    ...rangeSearch(search),
    outcome: OUTCOMES.find((one) => one === search.outcome),
    adapter: text(search.adapter),
    key: text(search.key),
    code: text(search.code),
    slow_ms: typeof search.slow_ms === "number" && search.slow_ms >= 0 ? search.slow_ms : undefined,
    cursor: text(search.cursor),
  }),
  component: lazyRouteComponent(() => import("../pages/requests"), "RequestsPage"),
});

const request = createRoute({
  getParentRoute: () => tenant,
  path: "/requests/$request",
  component: lazyRouteComponent(() => import("../pages/request"), "RequestPage"),
});

/** For who has the id alone. */
const requestPlace = createRoute({
  getParentRoute: () => inside,
  path: "/requests/$request",
  component: lazyRouteComponent(() => import("../pages/request-place"), "RequestPlacePage"),
});

export const overviewRoutes = [overview, requestPlace] as const;
export const ofTenantRequestRoutes = [requests, request] as const;
