import { useQuery, useQueryClient } from "@tanstack/react-query";
import { api, heard, type Schemas } from "../api/client";
import { useAdapterPath } from "./adapter-data";

export type Alias = Schemas["AliasOut"];

/** Version → percent, 100 in all. */
export type Weights = Record<string, number>;

const MOST_LISTED = 100;

/** Of the adapter, what is under it in the cache. */
export function useAdapterKey(): readonly string[] {
  const { tenant, name } = useAdapterPath();
  return ["tenant", tenant, "adapter", name];
}

export function useAdapterChanged(): () => Promise<void> {
  const client = useQueryClient();
  const key = useAdapterKey();
  return async () => {
    await client.invalidateQueries({ queryKey: key });
    await client.invalidateQueries({ queryKey: [key[0], key[1], "adapters"] });
  };
}

/** Numbers of the newest that may serve. */
export function useReadyVersions() {
  const path = useAdapterPath();
  const query = { limit: MOST_LISTED, state: "ready" as const };
  return useQuery({
    queryKey: [...useAdapterKey(), "versions", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/adapters/{name}/versions", { params: { path, query } })),
    select: (page) => ({ numbers: page.data.map((each) => each.version), more: page.has_more }),
  });
}

export function versionsOf(weights: Weights): string[] {
  return Object.keys(weights).sort((one, other) => Number(one) - Number(other));
}

/** `version` gets `percent`, the others of `among` share what is left as they did before; whole percents, 100 in
 * all. Those that have none are left out. */
export function withWeight(weights: Weights, among: string[], version: string, percent: number): Weights {
  const others = among.filter((each) => each !== version);
  if (others.length === 0) {
    return { [version]: 100 };
  }
  const left = 100 - percent;
  const before = others.reduce((sum, each) => sum + (weights[each] ?? 0), 0);
  const exact = others.map((each, place) => {
    const share = before > 0 ? (weights[each] ?? 0) / before : place === 0 ? 1 : 0;
    return { each, part: share * left };
  });
  const found: Weights = { [version]: percent };
  for (const { each, part } of exact) {
    found[each] = Math.floor(part);
  }
  let missing = 100 - Object.values(found).reduce((sum, each) => sum + each, 0);
  for (const { each } of exact.sort((one, other) => (other.part % 1) - (one.part % 1))) {
    if (missing > 0) {
      found[each] = (found[each] ?? 0) + 1;
      missing -= 1;
    }
  }
  return Object.fromEntries(Object.entries(found).filter(([, part]) => part > 0));
}

/** How many percent of the conversations change their version. */
export function moved(before: Weights, now: Weights): number {
  return versionsOf(now).reduce(
    (sum, version) => sum + Math.max(0, (now[version] ?? 0) - (before[version] ?? 0)),
    0,
  );
}

export function weightsText(weights: Weights): string {
  return versionsOf(weights)
    .map((version) => `${weights[version]}\u00a0% version ${version}`)
    .join(", ");
}
