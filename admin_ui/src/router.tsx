import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from "@tanstack/react-router";
import { Failure } from "./api/failure";
import { LoggedInPage, LogInPage } from "./pages/log-in";
import { PasswordPage } from "./pages/password";
import { Failed, Loading } from "./parts/states";
import { uiRoot } from "./place";
import { fetchSession, queries, SESSION, type Session } from "./session/door";
import { LogInAgain } from "./session/log-in-again";
import { Shell } from "./shell/shell";

const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);

const root = createRootRoute({
  component: () => (
    <>
      <Outlet />
    </>
  ),
});

const logIn = createRoute({
  getParentRoute: () => root,
  path: "/log-in",
  component: LogInPage,
  validateSearch: (search: Record<string, unknown>): { error?: string; return_to?: string } => {
    const returnTo = text(search.return_to);
    const inside = returnTo?.startsWith("/") && !/^\/[/\\]/.test(returnTo) ? returnTo : undefined;
    return { error: text(search.error), return_to: inside };
  },
});

const loggedIn = createRoute({ getParentRoute: () => root, path: "/logged-in", component: LoggedInPage });

/** Everything behind the door: nobody gets here without a session. */
const inside = createRoute({
  getParentRoute: () => root,
  id: "inside",
  component: () => (
    <>
      <Shell />
      <LogInAgain />
    </>
  ),
  beforeLoad: async ({ location }) => {
    const session = await enter(location.href);
    if (session.must_change_password && location.pathname !== "/password") {
      throw redirect({ to: "/password" });
    }
  },
});

async function enter(href: string): Promise<Session> {
  const kept = queries.getQueryData<Session>(SESSION);
  if (kept !== undefined) {
    return kept;
  }
  try {
    return await queries.fetchQuery({ queryKey: SESSION, queryFn: () => fetchSession(true) });
  } catch (error) {
    if (error instanceof Failure && error.status === 401) {
      throw redirect({ to: "/log-in", search: href === "/" ? {} : { return_to: href } });
    }
    throw error;
  }
}

const home = createRoute({
  getParentRoute: () => inside,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/tenants" });
  },
});

const password = createRoute({ getParentRoute: () => inside, path: "/password", component: PasswordPage });

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
  component: lazyRouteComponent(() => import("./pages/tenants"), "TenantsPage"),
});

const tenant = createRoute({
  getParentRoute: () => inside,
  path: "/tenants/$tenant",
  component: lazyRouteComponent(() => import("./pages/tenant"), "TenantPage"),
});

const tenantOverview = createRoute({
  getParentRoute: () => tenant,
  path: "/",
  component: lazyRouteComponent(() => import("./pages/tenant-overview"), "TenantOverview"),
});

const tenantLimits = createRoute({
  getParentRoute: () => tenant,
  path: "/limits",
  component: lazyRouteComponent(() => import("./pages/tenant-limits"), "TenantLimits"),
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
  component: lazyRouteComponent(() => import("./pages/keys"), "KeysPage"),
});

const key = createRoute({
  getParentRoute: () => tenant,
  path: "/keys/$key",
  component: lazyRouteComponent(() => import("./pages/key"), "KeyPage"),
});

export interface AuditSearch {
  actor?: string;
  action?: string;
  target?: string;
  since?: string;
  until?: string;
  cursor?: string;
}

const auditSearch = (search: Record<string, unknown>): AuditSearch => ({
  actor: text(search.actor),
  action: text(search.action),
  target: text(search.target),
  since: text(search.since),
  until: text(search.until),
  cursor: text(search.cursor),
});

const tenantAudit = createRoute({
  getParentRoute: () => tenant,
  path: "/audit",
  validateSearch: auditSearch,
  component: lazyRouteComponent(() => import("./pages/audit"), "TenantAudit"),
});

const audit = createRoute({
  getParentRoute: () => inside,
  path: "/audit",
  validateSearch: auditSearch,
  component: lazyRouteComponent(() => import("./pages/audit"), "AuditPage"),
});

const replicas = createRoute({
  getParentRoute: () => inside,
  path: "/replicas",
  validateSearch: (search: Record<string, unknown>): { cursor?: string } => ({ cursor: text(search.cursor) }),
  component: lazyRouteComponent(() => import("./pages/replicas"), "ReplicasPage"),
});

const routeTree = root.addChildren([
  logIn,
  loggedIn,
  inside.addChildren([
    home,
    password,
    tenants,
    tenant.addChildren([tenantOverview, tenantLimits, keys, key, tenantAudit]),
    replicas,
    audit,
  ]),
]);

export const router = createRouter({
  routeTree,
  basepath: uiRoot,
  defaultPreload: "intent",
  scrollRestoration: true,
  defaultPendingComponent: () => <Loading what="the page" />,
  defaultErrorComponent: ({ error, reset }) => <Failed error={error} onRetry={reset} />,
  defaultNotFoundComponent: () => <Failed error={new Failure(404, { detail: "There is no such page." })} />,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
