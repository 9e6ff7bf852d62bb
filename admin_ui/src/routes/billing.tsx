import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { type WindowSearch, windowSearch } from "../parts/window";
import { inside, tenant, text } from "./frame";

const GROUPS = ["adapter", "key", "service_class"] as const;

export interface UsageSearch extends WindowSearch {
  by?: (typeof GROUPS)[number];
  view?: "shared";
}

const month = (value: unknown) =>
  typeof value === "string" && /^20\d{2}-(0[1-9]|1[0-2])$/.test(value) ? value : undefined;

const usage = createRoute({
  getParentRoute: () => tenant,
  path: "/usage",
  validateSearch: (search: Record<string, unknown>): UsageSearch => ({
    ...windowSearch(search),
    by: GROUPS.find((each) => each === search.by),
    view: search.view === "shared" ? "shared" : undefined,
  }),
  component: lazyRouteComponent(() => import("../pages/usage"), "UsagePage"),
});

interface StatementSearch {
  month?: string;
  cursor?: string;
}

const statement = createRoute({
  getParentRoute: () => tenant,
  path: "/billing",
  validateSearch: (search: Record<string, unknown>): StatementSearch => ({
    month: month(search.month),
    cursor: text(search.cursor),
  }),
  component: lazyRouteComponent(() => import("../pages/statement"), "TenantBilling"),
});

const cursorOnly = (search: Record<string, unknown>): { cursor?: string } => ({
  cursor: text(search.cursor),
});

const billing = createRoute({
  getParentRoute: () => inside,
  path: "/billing",
  component: lazyRouteComponent(() => import("../pages/billing"), "BillingPage"),
});

const periods = createRoute({
  getParentRoute: () => billing,
  path: "/",
  validateSearch: cursorOnly,
  component: lazyRouteComponent(() => import("../pages/billing-periods"), "BillingPeriods"),
});

interface MonthSearch {
  ledger?: true;
  cursor?: string;
}

const ofMonth = createRoute({
  getParentRoute: () => billing,
  path: "/months/$month",
  validateSearch: (search: Record<string, unknown>): MonthSearch => ({
    ledger: search.ledger === true ? true : undefined,
    cursor: text(search.cursor),
  }),
  component: lazyRouteComponent(() => import("../pages/billing-month"), "BillingMonth"),
});

const exports = createRoute({
  getParentRoute: () => billing,
  path: "/exports",
  validateSearch: cursorOnly,
  component: lazyRouteComponent(() => import("../pages/exports"), "ExportsOfAll"),
});

export interface PricesSearch {
  cursor?: string;
  base?: string;
  service_class?: "interactive" | "standard" | "batch";
  owner?: string;
  adapter?: string;
}

const prices = createRoute({
  getParentRoute: () => billing,
  path: "/prices",
  validateSearch: (search: Record<string, unknown>): PricesSearch => ({
    cursor: text(search.cursor),
    base: text(search.base),
    service_class: (["interactive", "standard", "batch"] as const).find(
      (each) => each === search.service_class,
    ),
    owner: text(search.owner),
    adapter: text(search.adapter),
  }),
  component: lazyRouteComponent(() => import("../pages/prices"), "PricesPage"),
});

const newPrices = createRoute({
  getParentRoute: () => billing,
  path: "/prices/new",
  component: lazyRouteComponent(() => import("../pages/prices-new"), "NewPrices"),
});

const priceBook = createRoute({
  getParentRoute: () => billing,
  path: "/prices/$version",
  component: lazyRouteComponent(() => import("../pages/price-book"), "PriceBookPage"),
});

export const tenantBillingRoutes = [usage, statement] as const;
export const billingRoutes = [
  billing.addChildren([periods, ofMonth, exports, prices, newPrices, priceBook]),
] as const;
