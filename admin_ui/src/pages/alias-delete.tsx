import { useQuery } from "@tanstack/react-query";
import { api, heard } from "../api/client";
import { Confirm } from "../parts/confirm";
import { countText } from "../parts/figures";
import { OTHERS } from "../parts/traffic-steps";
import { useAdapterPath } from "./adapter-data";
import { type Alias, useAdapterChanged } from "./alias-data";

/** Only what it was when this opened: who moved it meanwhile is told of. */
export function DeleteAlias({ alias, onClose }: { alias: Alias; onClose: () => void }) {
  const path = useAdapterPath();
  const changed = useAdapterChanged();
  const answered = useAnsweredLately(path);
  const names = alias.alias === "live" ? `${path.name} and ${alias.id}` : alias.id;
  const lately =
    answered === undefined
      ? ""
      : ` In the last hour, this adapter had ${countText(answered, answered === 1 ? "request" : "requests")} under all of its names.`;
  return (
    <Confirm
      title={`Delete ${alias.id}`}
      effect={`From the next request on, ${names} is unknown: 404. No version goes; those that run end as they would.${lately}`}
      typed={alias.id}
      action="Delete"
      onConfirm={async () => {
        const params = {
          path: { ...path, alias: alias.alias },
          header: { "if-match": `"${alias.revision}"` },
        };
        await heard(api.DELETE("/api/v1/tenants/{tenant}/adapters/{name}/aliases/{alias}", { params }));
        await changed();
      }}
      onClose={onClose}
    />
  );
}

/** undefined: not known, which is not none. */
function useAnsweredLately(path: { tenant: string; name: string }): number | undefined {
  const query = { window: "1h", by: "adapter" as const, points: false };
  const read = useQuery({
    queryKey: ["tenant", path.tenant, "traffic", query],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/metrics/requests", {
          params: { path: { tenant: path.tenant }, query },
        }),
      ),
  });
  const series = read.data?.data;
  const own = series?.find((each) => each.key === path.name);
  if (series === undefined || (own === undefined && series.some((each) => each.key === OTHERS))) {
    return undefined;
  }
  return own?.total.requests ?? 0;
}
