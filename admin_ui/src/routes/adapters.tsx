import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { inside, tenant, text } from "./frame";

export interface AdaptersSearch {
  name?: string;
  state?: "retired";
  cursor?: string;
  shared?: string;
}

const adapters = createRoute({
  getParentRoute: () => tenant,
  path: "/adapters",
  validateSearch: (search: Record<string, unknown>): AdaptersSearch => ({
    name: text(search.name),
    state: search.state === "retired" ? search.state : undefined,
    cursor: text(search.cursor),
    shared: text(search.shared),
  }),
  component: lazyRouteComponent(() => import("../pages/adapters"), "AdaptersPage"),
});

/** What hangs under it is of one adapter, and a tab of its page. */
export const adapter = createRoute({
  getParentRoute: () => inside,
  path: "/tenants/$tenant/adapters/$name",
  component: lazyRouteComponent(() => import("../pages/adapter"), "AdapterPage"),
});

export interface VersionsSearch {
  state?: "uploaded" | "proving" | "ready" | "rejected" | "retired";
  cursor?: string;
}

const STATES = ["uploaded", "proving", "ready", "rejected", "retired"] as const;

const adapterVersions = createRoute({
  getParentRoute: () => adapter,
  path: "/",
  validateSearch: (search: Record<string, unknown>): VersionsSearch => ({
    state: STATES.find((state) => state === search.state),
    cursor: text(search.cursor),
  }),
  component: lazyRouteComponent(() => import("../pages/adapter-versions"), "AdapterVersions"),
});

export const ofTenantAdaptersRoutes = [adapters] as const;
export const ofAdapterRoutes = [adapterVersions] as const;
