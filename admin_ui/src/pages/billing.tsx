import { Tabs } from "@mantine/core";
import { Outlet, useNavigate, useRouterState } from "@tanstack/react-router";
import { Page } from "../parts/page";
import { useSession } from "../session/hooks";

const MONTH = new Date().toISOString().slice(0, 7);
const TABS = [
  { value: "periods", to: "/billing", label: "Months", needs: "list_billing_periods" },
  { value: "exports", to: "/billing/exports", label: "Exports", needs: "list_billing_exports" },
  { value: "prices", to: "/billing/prices", label: "Price book", needs: "list_price_books" },
] as const;

export function BillingPage() {
  const session = useSession();
  const navigate = useNavigate();
  const part = useRouterState({ select: (state) => state.location.pathname.split("/")[2] });
  const tab = TABS.find(({ value }) => value === part)?.value ?? "periods";
  return (
    <Page
      title="Billing"
      tab={TABS.find(({ value }) => value === tab)?.label}
      calls={[
        { method: "GET", path: "/api/v1/billing/periods" },
        { method: "GET", path: `/api/v1/billing/periods/${MONTH}/tenants?ledger=true` },
        { method: "POST", path: "/api/v1/billing/exports", body: { month: MONTH } },
        { method: "GET", path: "/api/v1/price-books" },
      ]}
    >
      <Tabs
        value={tab}
        onChange={(value) =>
          void navigate({ to: TABS.find((each) => each.value === value)?.to ?? "/billing" })
        }
        keepMounted={false}
      >
        <Tabs.List>
          {TABS.filter(({ needs }) => session.can.includes(needs)).map(({ value, label }) => (
            <Tabs.Tab key={value} value={value}>
              {label}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value={tab} pt="md">
          <Outlet />
        </Tabs.Panel>
      </Tabs>
    </Page>
  );
}
