import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { tenant, text } from "./frame";

const place = (search: Record<string, unknown>): { cursor?: string } => ({ cursor: text(search.cursor) });

const members = createRoute({
  getParentRoute: () => tenant,
  path: "/members",
  validateSearch: place,
  component: lazyRouteComponent(() => import("../pages/members"), "MembersPage"),
});

const member = createRoute({
  getParentRoute: () => tenant,
  path: "/members/$member",
  validateSearch: place,
  component: lazyRouteComponent(() => import("../pages/member"), "MemberPage"),
});

const webhooks = createRoute({
  getParentRoute: () => tenant,
  path: "/webhooks",
  component: lazyRouteComponent(() => import("../pages/webhooks"), "WebhooksPage"),
});

const webhook = createRoute({
  getParentRoute: () => tenant,
  path: "/webhooks/$webhook",
  validateSearch: (search: Record<string, unknown>): { cursor?: string; delivery?: string } => ({
    ...place(search),
    delivery: text(search.delivery),
  }),
  component: lazyRouteComponent(() => import("../pages/webhook"), "WebhookPage"),
});

export const peopleRoutes = [members, member] as const;
export const webhookRoutes = [webhooks, webhook] as const;
