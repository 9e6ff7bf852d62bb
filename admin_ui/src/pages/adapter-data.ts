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
    queryFn: () => findAdapter(path),
  });
}

async function findAdapter(path: { tenant: string; name: string }): Promise<Adapter> {
  const ask = (state: "retired" | null) =>
    heard(api.GET("/api/v1/tenants/{tenant}/adapters/{name}", { params: { path, query: { state } } }));
  try {
    return await ask(null);
  } catch (error) {
    if (error instanceof Failure && error.status === 404) {
      return ask("retired");
    }
    throw error;
  }
}
