import { createRoute, createRouter, redirect } from "@tanstack/react-router";
import { Failure } from "./api/failure";
import { isOutdated, loadNewer } from "./outdated";
import { Failed, Loading } from "./parts/states";
import { uiRoot } from "./place";
import { adapter, besideAdapterRoutes, ofAdapterRoutes, ofTenantAdaptersRoutes } from "./routes/adapters";
import { billingRoutes, tenantBillingRoutes } from "./routes/billing";
import { accountRoutes, doorRoutes } from "./routes/doors";
import { fleetRoutes } from "./routes/fleet";
import { inside, root, tenant } from "./routes/frame";
import { ofTenantRequestRoutes, overviewRoutes } from "./routes/overview";
import { peopleRoutes, webhookRoutes } from "./routes/people";
import { platformRoutes, tenantAuditRoutes } from "./routes/platform";
import { playgroundRoutes } from "./routes/playground";
import { rolloutsRoutes } from "./routes/rollouts";
import { settingsRoutes, tenantSettingsRoutes } from "./routes/settings";
import { ofTenantRoutes, tenantsRoutes } from "./routes/tenants";
import { queries, SESSION, type Session } from "./session/door";

const home = createRoute({
  getParentRoute: () => inside,
  path: "/",
  beforeLoad: () => {
    const session = queries.getQueryData<Session>(SESSION);
    throw redirect({ to: session?.can.includes("read_attention") ? "/overview" : "/tenants" });
  },
});

const routeTree = root.addChildren([
  ...doorRoutes,
  inside.addChildren([
    home,
    ...accountRoutes,
    ...overviewRoutes,
    ...tenantsRoutes,
    tenant.addChildren([
      ...ofTenantRoutes,
      ...ofTenantAdaptersRoutes,
      ...ofTenantRequestRoutes,
      ...tenantBillingRoutes,
      ...tenantAuditRoutes,
      ...playgroundRoutes,
      ...peopleRoutes,
      ...webhookRoutes,
      ...tenantSettingsRoutes,
    ]),
    adapter.addChildren([...ofAdapterRoutes, ...rolloutsRoutes]),
    ...besideAdapterRoutes,
    ...billingRoutes,
    ...platformRoutes,
    ...fleetRoutes,
    ...settingsRoutes,
  ]),
]);

export const router = createRouter({
  routeTree,
  basepath: uiRoot,
  defaultPreload: "intent",
  scrollRestoration: true,
  defaultPendingComponent: () => <Loading what="the page" />,
  defaultErrorComponent: ({ error }) => (
    <Failed error={error} onRetry={() => void (isOutdated(error) ? loadNewer() : router.invalidate())} />
  ),
  defaultNotFoundComponent: () => <Failed error={new Failure(404, { detail: "There is no such page." })} />,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
