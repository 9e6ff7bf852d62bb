import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { inside, tenant, text } from "./frame";

const settings = createRoute({
  getParentRoute: () => inside,
  path: "/settings",
  component: lazyRouteComponent(() => import("../pages/settings"), "SettingsPage"),
});

const account = createRoute({
  getParentRoute: () => settings,
  path: "/",
  component: lazyRouteComponent(() => import("../pages/settings-account"), "AccountSettings"),
});

interface StoreSearch {
  cursor?: string;
  check?: string;
}

const store = createRoute({
  getParentRoute: () => settings,
  path: "/store",
  validateSearch: (search: Record<string, unknown>): StoreSearch => ({
    cursor: text(search.cursor),
    check: text(search.check),
  }),
  component: lazyRouteComponent(() => import("../pages/settings-store"), "StoreSettings"),
});

const tenantSettings = createRoute({
  getParentRoute: () => tenant,
  path: "/settings",
  component: lazyRouteComponent(() => import("../pages/tenant-settings"), "TenantSettings"),
});

export const settingsRoutes = [settings.addChildren([account, store])] as const;
export const tenantSettingsRoutes = [tenantSettings] as const;
