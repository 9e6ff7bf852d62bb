import { Tabs } from "@mantine/core";
import { Outlet, useNavigate, useRouterState } from "@tanstack/react-router";
import { type ApiCall, Page } from "../parts/page";
import { useSession } from "../session/hooks";

const TABS = [
  { value: "account", label: "Account", needs: null },
  { value: "store", label: "Object store", needs: "read_store" },
] as const;

const CALLS: Record<string, ApiCall[]> = {
  account: [
    { method: "GET", path: "/api/v1/session" },
    { method: "GET", path: "/api/v1/session/providers" },
    { method: "DELETE", path: "/api/v1/sessions" },
  ],
  store: [
    { method: "GET", path: "/api/v1/store" },
    { method: "GET", path: "/api/v1/store/fsck" },
    { method: "POST", path: "/api/v1/store/fsck", body: { repair: false, depth: "sampled" } },
  ],
};

export function SettingsPage() {
  const session = useSession();
  const navigate = useNavigate();
  const tab = useRouterState({ select: (state) => state.location.pathname.split("/")[2] || "account" });
  return (
    <Page title="Settings" tab={TABS.find(({ value }) => value === tab)?.label} calls={CALLS[tab] ?? []}>
      <Tabs
        value={tab}
        onChange={(value) => void navigate({ to: value === "account" ? "/settings" : `/settings/${value}` })}
        keepMounted={false}
      >
        <Tabs.List>
          {TABS.filter(({ needs }) => needs === null || session.can.includes(needs)).map(
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
