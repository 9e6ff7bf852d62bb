import { Tabs } from "@mantine/core";
import { Outlet, useNavigate, useRouterState } from "@tanstack/react-router";
import { Page } from "../parts/page";
import { Read } from "../parts/states";
import { callsOf } from "./tenant-calls";
import { type Tenant, useTenant } from "./tenant-data";
import { SuspendOrResume } from "./tenant-suspend";
import { TenantStatus } from "./tenants";

const TABS = [
  { value: "overview", label: "Overview", needs: null },
  { value: "adapters", label: "Adapters", needs: "list_adapters" },
  { value: "playground", label: "Playground", needs: "list_models" },
  { value: "requests", label: "Requests", needs: "read_requests" },
  { value: "usage", label: "Usage", needs: "read_usage" },
  { value: "billing", label: "Billing", needs: "read_billing" },
  { value: "keys", label: "Keys", needs: "list_keys" },
  { value: "members", label: "Members", needs: "list_members" },
  { value: "webhooks", label: "Webhooks", needs: "list_webhooks" },
  { value: "limits", label: "Limits", needs: "read_limits" },
  { value: "audit", label: "Audit", needs: "read_audit" },
  { value: "settings", label: "Settings", needs: "read_retention" },
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
  return (
    <Page
      title={tenant.name}
      aside={<TenantStatus tenant={tenant} />}
      actions={<SuspendOrResume tenant={tenant} />}
      tab={TABS.find(({ value }) => value === tab)?.label}
      calls={callsOf(tab, tenant)}
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
