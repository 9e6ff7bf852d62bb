import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { adapter } from "./adapters";
import { text } from "./frame";

interface AliasesSearch {
  cursor?: string;
  /** The alias that is being moved. */
  open?: string;
}

const aliases = createRoute({
  getParentRoute: () => adapter,
  path: "/aliases",
  validateSearch: (search: Record<string, unknown>): AliasesSearch => ({
    cursor: text(search.cursor),
    open: text(search.open),
  }),
  component: lazyRouteComponent(() => import("../pages/adapter-aliases"), "AdapterAliases"),
});

interface RolloutsSearch {
  cursor?: string;
  /** The alias that a new one is being planned for. */
  begin?: string;
}

const rollouts = createRoute({
  getParentRoute: () => adapter,
  path: "/rollouts",
  validateSearch: (search: Record<string, unknown>): RolloutsSearch => ({
    cursor: text(search.cursor),
    begin: text(search.begin),
  }),
  component: lazyRouteComponent(() => import("../pages/adapter-rollouts"), "AdapterRollouts"),
});

const rollout = createRoute({
  getParentRoute: () => adapter,
  path: "/rollouts/$rollout",
  component: lazyRouteComponent(() => import("../pages/rollout"), "RolloutPage"),
});

export interface DiffSearch {
  old?: number;
  new?: number;
  /** Also what is the same. */
  all?: boolean;
}

const version = (value: unknown) =>
  typeof value === "number" && Number.isInteger(value) && value > 0 ? value : undefined;

const diff = createRoute({
  getParentRoute: () => adapter,
  path: "/diff",
  validateSearch: (search: Record<string, unknown>): DiffSearch => ({
    old: version(search.old),
    new: version(search.new),
    all: search.all === true ? true : undefined,
  }),
  component: lazyRouteComponent(() => import("../pages/adapter-diff"), "AdapterDiff"),
});

export const rolloutsRoutes = [aliases, rollouts, rollout, diff] as const;
