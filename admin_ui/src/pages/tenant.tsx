import { Button, Tabs } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Outlet, useNavigate, useRouterState } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard } from "../api/client";
import { Confirm } from "../parts/confirm";
import { Page } from "../parts/page";
import { Read } from "../parts/states";
import { type Tenant, useTenant } from "./tenant-data";
import { TenantStatus } from "./tenants";

const TABS = [
  { value: "overview", label: "Overview", needs: null },
  { value: "adapters", label: "Adapters", needs: "list_adapters" },
  { value: "keys", label: "Keys", needs: "list_keys" },
  { value: "limits", label: "Limits", needs: "read_limits" },
  { value: "audit", label: "Audit", needs: "read_audit" },
] as const;

export function TenantPage() {
  const tenant = useTenant();
  return (
    <Read of={tenant} what="the tenant">
      {(found) => <TenantFrame key={found.id} tenant={found} />}
    </Read>
  );
}

function TenantFrame({ tenant }: { tenant: Tenant }) {
  const navigate = useNavigate();
  const tab = useRouterState({ select: (state) => state.location.pathname.split("/")[3] || "overview" });
  const root = `/api/v1/tenants/${tenant.id}`;
  return (
    <Page
      title={tenant.name}
      aside={<TenantStatus tenant={tenant} />}
      actions={<SuspendOrResume tenant={tenant} />}
      calls={[
        { method: "GET", path: root },
        { method: "GET", path: `${root}/limits/now` },
        { method: "GET", path: `${root}/adapters?limit=50` },
        { method: "POST", path: `${root}/suspend`, body: { reason: "unpaid" } },
      ]}
    >
      <Tabs
        value={tab}
        onChange={(value) =>
          void navigate({ to: `/tenants/${tenant.id}${value === "overview" ? "" : `/${value}`}` })
        }
        keepMounted={false}
      >
        <Tabs.List>
          {TABS.filter(({ needs }) => needs === null || tenant.can.includes(needs)).map(
            ({ value, label }) => (
              <Tabs.Tab key={value} value={value}>
                {label}
              </Tabs.Tab>
            ),
          )}
        </Tabs.List>
        <Tabs.Panel value={tab} pt="md">
          <Outlet />
        </Tabs.Panel>
      </Tabs>
    </Page>
  );
}

function SuspendOrResume({ tenant }: { tenant: Tenant }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  const params = { path: { tenant: tenant.id } };
  const take = async (call: Promise<Tenant>) => {
    client.setQueryData(["tenant", tenant.id], await call);
    await client.invalidateQueries({ queryKey: ["tenants"] });
  };
  if (tenant.can.includes("resume")) {
    return (
      <>
        <Button onClick={() => setAsking(true)}>Resume…</Button>
        {asking && (
          <Confirm
            title={`Resume ${tenant.name}`}
            effect="Its keys are let in again with the next request."
            action="Resume"
            dangerous={false}
            onConfirm={() => take(heard(api.POST("/api/v1/tenants/{tenant}/resume", { params })))}
            onClose={() => setAsking(false)}
          />
        )}
      </>
    );
  }
  if (!tenant.can.includes("suspend")) {
    return null;
  }
  return (
    <>
      <Button color="red" variant="light" onClick={() => setAsking(true)}>
        Suspend…
      </Button>
      {asking && (
        <Confirm
          title={`Suspend ${tenant.name}`}
          effect="From the next request on, all of its keys are refused. What runs now ends as it would."
          typed={tenant.name}
          action="Suspend"
          field={{ label: "Reason, for the audit log" }}
          onConfirm={(reason) =>
            take(heard(api.POST("/api/v1/tenants/{tenant}/suspend", { params, body: { reason } })))
          }
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}
