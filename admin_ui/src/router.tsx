import { createRoute, createRouter, redirect } from "@tanstack/react-router";
import { Failure } from "./api/failure";
import { isOutdated } from "./outdated";
import { Failed, Loading } from "./parts/states";
import { uiRoot } from "./place";
import { accountRoutes, doorRoutes } from "./routes/doors";
import { inside, root, tenant } from "./routes/frame";
import { platformRoutes, tenantAuditRoutes } from "./routes/platform";
import { ofTenantRoutes, tenantsRoutes } from "./routes/tenants";

const home = createRoute({
  getParentRoute: () => inside,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/tenants" });
  },
});

const routeTree = root.addChildren([
  ...doorRoutes,
  inside.addChildren([
    home,
    ...accountRoutes,
    ...tenantsRoutes,
    tenant.addChildren([...ofTenantRoutes, ...tenantAuditRoutes]),
    ...platformRoutes,
  ]),
]);

export const router = createRouter({
  routeTree,
  basepath: uiRoot,
  defaultPreload: "intent",
  scrollRestoration: true,
  defaultPendingComponent: () => <Loading what="the page" />,
  defaultErrorComponent: ({ error, reset }) => (
    <Failed error={error} onRetry={isOutdated(error) ? () => window.location.reload() : reset} />
  ),
  defaultNotFoundComponent: () => <Failed error={new Failure(404, { detail: "There is no such page." })} />,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
