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

const upload = createRoute({
  getParentRoute: () => inside,
  path: "/tenants/$tenant/upload",
  validateSearch: (search: Record<string, unknown>): { name?: string } => ({ name: text(search.name) }),
  component: lazyRouteComponent(() => import("../pages/upload"), "UploadPage"),
});

const version = createRoute({
  getParentRoute: () => adapter,
  path: "/versions/$number",
  component: lazyRouteComponent(() => import("../pages/version"), "VersionPage"),
});

const limits = createRoute({
  getParentRoute: () => adapter,
  path: "/limits",
  component: lazyRouteComponent(() => import("../pages/adapter-limits"), "AdapterLimits"),
});

const purge = createRoute({
  getParentRoute: () => inside,
  path: "/tenants/$tenant/adapters/$name/purge",
  validateSearch: (search: Record<string, unknown>): { version?: number } => ({
    version: Number.isInteger(search.version) ? Number(search.version) : undefined,
  }),
  component: lazyRouteComponent(() => import("../pages/purge"), "PurgePage"),
});

export const ofTenantAdaptersRoutes = [adapters] as const;
export const ofAdapterRoutes = [adapterVersions, version, limits] as const;
export const besideAdapterRoutes = [upload, purge] as const;
