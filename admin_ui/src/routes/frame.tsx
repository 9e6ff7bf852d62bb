import { createRootRoute, createRoute, lazyRouteComponent, Outlet, redirect } from "@tanstack/react-router";
import { Failure } from "../api/failure";
import { fetchSession, queries, SESSION, type Session } from "../session/door";
import { LogInAgain } from "../session/log-in-again";
import { Shell } from "../shell/shell";

/** A search parameter that is text and says something. */
export const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);

export const root = createRootRoute({
  component: () => (
    <>
      <Outlet />
    </>
  ),
});

/** Everything behind the door: nobody gets here without a session. */
export const inside = createRoute({
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

/** What hangs under it is of one tenant, and a tab of its page. */
export const tenant = createRoute({
  getParentRoute: () => inside,
  path: "/tenants/$tenant",
  component: lazyRouteComponent(() => import("../pages/tenant"), "TenantPage"),
});
