import { useQuery } from "@tanstack/react-query";
import { api, heard, type Schemas } from "../api/client";
import { Confirm } from "../parts/confirm";
import { countText } from "../parts/figures";

interface Props {
  found: Schemas["KeyOut"];
  onRevoked: () => Promise<void>;
  onClose: () => void;
}

/** Nobody brings it back, so it says first what still asks with it. */
export function RevokeKey({ found, onRevoked, onClose }: Props) {
  const used = useRequestsOf(found);
  return (
    <Confirm
      title={`Revoke ${found.name}`}
      effect={`Its requests are refused from the next one on, for good.${used}`}
      typed={found.name}
      action="Revoke"
      onConfirm={async () => {
        const params = { path: { tenant: found.tenant, key_id: found.id } };
        await heard(api.DELETE("/api/v1/tenants/{tenant}/keys/{key_id}", { params }));
        await onRevoked();
      }}
      onClose={onClose}
    />
  );
}

/** "" as long as nobody knows. */
function useRequestsOf({ tenant, id }: Schemas["KeyOut"]): string {
  const query = { period: "last_7_days" as const, by: "key" as const };
  const read = useQuery({
    queryKey: ["tenant", tenant, "usage", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/usage/summary", { params: { path: { tenant }, query } })),
  });
  const own = read.data?.groups.find((group) => group.id === id)?.requests;
  if (read.data === undefined || (own === undefined && read.data.others !== null)) {
    return "";
  }
  return ` In the last 7 days it had ${countText(own ?? 0, own === 1 ? "request" : "requests")}.`;
}
