import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";

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
      heard(
        api.GET("/api/v1/tenants/{tenant}/adapters/{name}", { params: { path, query: { state: "any" } } }),
      ),
  });
}

/** Of all adapters of a tenant in one request, which tells the busiest and sums up the others. */
export function useTraffic(tenant: string): Schemas["RequestMetrics"] | undefined {
  return useQuery({
    queryKey: ["tenant", tenant, "traffic", "by-adapter"],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/metrics/requests", {
          params: { path: { tenant }, query: { window: "24h", by: "adapter", points: false } },
        }),
      ),
    refetchInterval: 60_000,
  }).data;
}
