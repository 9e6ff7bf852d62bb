import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { NUMBER_NAMES, NUMBERS, type Numbers } from "../playground/request";
import { tenant, text } from "./frame";

/** Texts that are typed are not in it: prompts stay out of addresses, and so out of histories and logs. */
export interface PlaygroundSearch extends Numbers {
  model?: string;
  beside?: string;
}

const playground = createRoute({
  getParentRoute: () => tenant,
  path: "/playground",
  validateSearch: (search: Record<string, unknown>): PlaygroundSearch => ({
    model: text(search.model),
    beside: text(search.beside),
    ...Object.fromEntries(
      NUMBER_NAMES.map((name) => [name, within(search[name], NUMBERS[name])]).filter(
        ([, value]) => value !== undefined,
      ),
    ),
  }),
  component: lazyRouteComponent(() => import("../pages/playground"), "PlaygroundPage"),
});

function within(value: unknown, { min, max }: { min: number; max: number }): number | undefined {
  return typeof value === "number" && value >= min && value <= max ? value : undefined;
}

export const playgroundRoutes = [playground] as const;
