import { createRoute } from "@tanstack/react-router";
import { LoggedInPage, LogInPage } from "../pages/log-in";
import { PasswordPage } from "../pages/password";
import { inside, root, text } from "./frame";

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

const password = createRoute({ getParentRoute: () => inside, path: "/password", component: PasswordPage });

export const doorRoutes = [logIn, loggedIn] as const;
export const accountRoutes = [password] as const;
