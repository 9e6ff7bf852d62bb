import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Failure } from "../api/failure";

export type Adapter = Schemas["AdapterOut"];

export function useAdapterPath(): { tenant: string; name: string } {
  return useParams({ from: "/inside/tenants/$tenant/adapters/$name" });
}

/** The adapter of the page; one whose versions are all retired, too. */
export function useAdapter() {
  const path = useAdapterPath();
  return useQuery({
    queryKey: ["tenant", path.tenant, "adapter", path.name],
    queryFn: () =>
      findRetiredToo((state) =>
        heard(api.GET("/api/v1/tenants/{tenant}/adapters/{name}", { params: { path, query: { state } } })),
      ),
  });
}

/** What is there, or else what can be restored of it. */
export async function findRetiredToo<Found>(
  ask: (state: "retired" | null) => Promise<Found>,
): Promise<Found> {
  try {
    return await ask(null);
  } catch (error) {
    if (error instanceof Failure && error.status === 404) {
      return ask("retired");
    }
    throw error;
  }
}

export const OTHERS = "(other)";

/** Of all adapters of a tenant in one request, which tells the busiest and sums up the others. */
export function useTraffic(tenant: string): Schemas["RequestMetrics"] | undefined {
  return useQuery({
    queryKey: ["tenant", tenant, "traffic", "by-adapter"],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/metrics/requests", {
          params: { path: { tenant }, query: { window: "24h", step: "1h", by: "adapter" } },
        }),
      ),
    refetchInterval: 60_000,
  }).data;
}
