import { Button } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, heard } from "../api/client";
import { Confirm } from "../parts/confirm";
import { countText } from "../parts/figures";
import type { Tenant } from "./tenant-data";

const COUNTED = 200;

/** What both do with the answer: the tenant as it is now. */
function useTake(tenant: Tenant) {
  const client = useQueryClient();
  return async (call: Promise<Tenant>) => {
    client.setQueryData(["tenant", tenant.id], await call);
    await client.invalidateQueries({ queryKey: ["tenants"] });
  };
}

export function SuspendOrResume({ tenant }: { tenant: Tenant }) {
  const [asking, setAsking] = useState<"suspend" | "resume" | null>(null); // which: the answer changes what may be
  const close = () => setAsking(null);
  return (
    <>
      {tenant.can.includes("resume") && <Button onClick={() => setAsking("resume")}>Resume…</Button>}
      {tenant.can.includes("suspend") && (
        <Button color="red" variant="light" onClick={() => setAsking("suspend")}>
          Suspend…
        </Button>
      )}
      {asking === "resume" && <Resume tenant={tenant} onClose={close} />}
      {asking === "suspend" && <Suspend tenant={tenant} onClose={close} />}
    </>
  );
}

interface Props {
  tenant: Tenant;
  onClose: () => void;
}

function Resume({ tenant, onClose }: Props) {
  const take = useTake(tenant);
  const params = { path: { tenant: tenant.id } };
  return (
    <Confirm
      title={`Resume ${tenant.name}`}
      effect="Its keys are let in again with the next request."
      action="Resume"
      dangerous={false}
      onConfirm={() => take(heard(api.POST("/api/v1/tenants/{tenant}/resume", { params })))}
      onClose={onClose}
    />
  );
}

function Suspend({ tenant, onClose }: Props) {
  const take = useTake(tenant);
  const params = { path: { tenant: tenant.id } };
  const stakes = useQuery({
    queryKey: ["tenant", tenant.id, "stakes", "suspend"],
    queryFn: async () => {
      const query = { state: "live" as const, limit: COUNTED };
      const keys = api.GET("/api/v1/tenants/{tenant}/keys", { params: { ...params, query } });
      const hour = { window: "1h", points: false };
      const traffic = api.GET("/api/v1/tenants/{tenant}/metrics/requests", {
        params: { ...params, query: hour },
      });
      const [live, told] = await Promise.all([heard(keys), heard(traffic)]);
      const count = countText(live.data.length, live.data.length === 1 ? "live key" : "live keys");
      const asked = told.data[0]?.total.requests ?? 0;
      return {
        keys: live.has_more ? `more than ${count}` : count,
        asked: countText(asked, asked === 1 ? "request" : "requests"),
      };
    },
    staleTime: 0,
  });
  const found = stakes.data;
  return (
    <Confirm
      title={`Suspend ${tenant.name}`}
      effect={
        found === undefined
          ? stakes.error === null
            ? "Counting what it stops…"
            : "From the next request on, all of its keys are refused. How many, nobody can say now. What runs now ends as it would."
          : `From the next request on, all requests of ${found.keys} are refused; in the last hour there were ${found.asked}. What runs now ends as it would.`
      }
      ready={found !== undefined || stakes.error !== null}
      typed={tenant.name}
      action="Suspend"
      field={{ label: "Reason, for the audit log" }}
      onConfirm={(reason) =>
        take(heard(api.POST("/api/v1/tenants/{tenant}/suspend", { params, body: { reason } })))
      }
      onClose={onClose}
    />
  );
}
