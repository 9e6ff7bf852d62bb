import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { rangeSearch } from "../parts/range-search";
import { inside, tenant, text } from "./frame";

export interface TenantsSearch {
  name?: string;
  status?: "active" | "suspended";
  cursor?: string;
}

const tenants = createRoute({
  getParentRoute: () => inside,
  path: "/tenants",
  validateSearch: (search: Record<string, unknown>): TenantsSearch => ({
    name: text(search.name),
    status: search.status === "active" || search.status === "suspended" ? search.status : undefined,
    cursor: text(search.cursor),
  }),
  component: lazyRouteComponent(() => import("../pages/tenants"), "TenantsPage"),
});

const tenantOverview = createRoute({
  getParentRoute: () => tenant,
  path: "/",
  validateSearch: rangeSearch,
  component: lazyRouteComponent(() => import("../pages/tenant-overview"), "TenantOverview"),
});

const tenantLimits = createRoute({
  getParentRoute: () => tenant,
  path: "/limits",
  component: lazyRouteComponent(() => import("../pages/tenant-limits"), "TenantLimits"),
});

export interface KeysSearch {
  name?: string;
  state?: "live" | "expired" | "revoked";
  cursor?: string;
}

const keys = createRoute({
  getParentRoute: () => tenant,
  path: "/keys",
  validateSearch: (search: Record<string, unknown>): KeysSearch => ({
    name: text(search.name),
    state:
      search.state === "live" || search.state === "expired" || search.state === "revoked"
        ? search.state
        : undefined,
    cursor: text(search.cursor),
  }),
  component: lazyRouteComponent(() => import("../pages/keys"), "KeysPage"),
});

const key = createRoute({
  getParentRoute: () => tenant,
  path: "/keys/$key",
  component: lazyRouteComponent(() => import("../pages/key"), "KeyPage"),
});

export const tenantsRoutes = [tenants] as const;
export const ofTenantRoutes = [tenantOverview, tenantLimits, keys, key] as const;
