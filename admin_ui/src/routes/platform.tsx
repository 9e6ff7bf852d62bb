import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { momentOf } from "../parts/range-search";
import { inside, tenant, text } from "./frame";

export interface AuditSearch {
  actor?: string;
  action?: string;
  target?: string;
  since?: string;
  until?: string;
  cursor?: string;
  /** The event that is open. */
  event?: string;
}

const auditSearch = (search: Record<string, unknown>): AuditSearch => ({
  actor: text(search.actor),
  action: text(search.action),
  target: text(search.target),
  since: momentOf(search.since),
  until: momentOf(search.until),
  cursor: text(search.cursor),
  event: text(search.event),
});

const tenantAudit = createRoute({
  getParentRoute: () => tenant,
  path: "/audit",
  validateSearch: auditSearch,
  component: lazyRouteComponent(() => import("../pages/audit"), "TenantAudit"),
});

const audit = createRoute({
  getParentRoute: () => inside,
  path: "/audit",
  validateSearch: auditSearch,
  component: lazyRouteComponent(() => import("../pages/audit"), "AuditPage"),
});

const replicas = createRoute({
  getParentRoute: () => inside,
  path: "/replicas",
  validateSearch: (search: Record<string, unknown>): { cursor?: string } => ({ cursor: text(search.cursor) }),
  component: lazyRouteComponent(() => import("../pages/replicas"), "ReplicasPage"),
});

export const platformRoutes = [replicas, audit] as const;
export const tenantAuditRoutes = [tenantAudit] as const;
