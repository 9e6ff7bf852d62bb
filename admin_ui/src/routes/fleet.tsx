import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { inside, text } from "./frame";

export interface PlacementSearch {
  name?: string;
  tenant?: string;
  replica?: string;
  tier?: "device" | "host";
  wanted?: boolean;
  cursor?: string;
}

const placement = createRoute({
  getParentRoute: () => inside,
  path: "/placement",
  validateSearch: (search: Record<string, unknown>): PlacementSearch => ({
    name: text(search.name),
    tenant: text(search.tenant),
    replica: text(search.replica),
    tier: search.tier === "device" || search.tier === "host" ? search.tier : undefined,
    wanted: typeof search.wanted === "boolean" ? search.wanted : undefined,
    cursor: text(search.cursor),
  }),
  component: lazyRouteComponent(() => import("../pages/placement"), "PlacementPage"),
});

const replica = createRoute({
  getParentRoute: () => inside,
  path: "/replicas/$replica",
  validateSearch: (search: Record<string, unknown>): { cursor?: string } => ({ cursor: text(search.cursor) }),
  component: lazyRouteComponent(() => import("../pages/replica"), "ReplicaPage"),
});

const pools = createRoute({
  getParentRoute: () => inside,
  path: "/pools",
  component: lazyRouteComponent(() => import("../pages/pools"), "PoolsPage"),
});

const bases = createRoute({
  getParentRoute: () => inside,
  path: "/bases",
  component: lazyRouteComponent(() => import("../pages/bases"), "BasesPage"),
});

interface LeftBehindSearch {
  digest?: string;
  cursor?: string;
}

const leftBehind = createRoute({
  getParentRoute: () => inside,
  path: "/bases/$base/left-behind",
  validateSearch: (search: Record<string, unknown>): LeftBehindSearch => ({
    digest: text(search.digest),
    cursor: text(search.cursor),
  }),
  component: lazyRouteComponent(() => import("../pages/left-behind"), "LeftBehindPage"),
});

export const fleetRoutes = [placement, replica, pools, bases, leftBehind] as const;
