import { Anchor, Button, Group, Tabs } from "@mantine/core";
import { Link, Outlet, useNavigate, useRouterState } from "@tanstack/react-router";
import { type ApiCall, Page } from "../parts/page";
import { Read } from "../parts/states";
import { type Adapter, useAdapter, useAdapterPath } from "./adapter-data";
import { PurgeButton, RestoreButton, RetireButton } from "./adapter-end";
import { VersionState } from "./adapter-state";

/** A tab's value is what follows the adapter's address; that of versions is the address itself. */
const TABS = [
  { value: "versions", label: "Versions", needs: null },
  { value: "aliases", label: "Aliases", needs: "list_aliases" },
  { value: "rollouts", label: "Rollouts", needs: "list_rollouts" },
  { value: "diff", label: "Diff", needs: "compare" },
  { value: "limits", label: "Limits and placement", needs: "read_limits" },
] as const satisfies readonly {
  value: string;
  label: string;
  needs: Adapter["can"][number] | null;
}[];

/** What a tab asks for, beside the frame's own. */
const CALLS: Record<string, ApiCall[]> = {
  versions: [
    { method: "GET", path: "/versions?limit=50" },
    { method: "GET", path: "/versions/1/proof" },
  ],
  limits: [
    { method: "GET", path: "/limits" },
    { method: "GET", path: "/placement" },
  ],
  aliases: [
    { method: "GET", path: "/aliases" },
    { method: "PUT", path: "/aliases/live", body: { weights: { 1: 95, 2: 5 } } },
    { method: "DELETE", path: "/aliases/canary" },
  ],
  rollouts: [
    { method: "GET", path: "/rollouts" },
    { method: "POST", path: "/rollouts", body: { alias: "live", to: 2 } },
    { method: "GET", path: "/rollouts/ROLLOUT" },
    { method: "POST", path: "/rollouts/ROLLOUT/rollback" },
  ],
  diff: [{ method: "GET", path: "/versions/1/diff/2" }],
};

export function AdapterPage() {
  const adapter = useAdapter();
  return (
    <Read of={adapter} what="the adapter">
      {(found) => <AdapterFrame key={found.name} adapter={found} />}
    </Read>
  );
}

function AdapterFrame({ adapter }: { adapter: Adapter }) {
  const { tenant } = useAdapterPath();
  const navigate = useNavigate();
  const tab = useRouterState({ select: (state) => state.location.pathname.split("/")[5] || "versions" });
  const root = `/api/v1/tenants/${tenant}/adapters/${adapter.name}`;
  return (
    <>
      <Anchor component={Link} to={`/tenants/${tenant}/adapters`} size="sm">
        All adapters
      </Anchor>
      <Page
        title={adapter.name}
        tab={TABS.find(({ value }) => value === tab)?.label}
        aside={<VersionState state={adapter.state} />}
        actions={<Actions adapter={adapter} />}
        calls={[
          { method: "GET", path: root },
          ...(CALLS[tab] ?? []).map((call) => ({ ...call, path: root + call.path })),
        ]}
      >
        <Tabs
          value={tab}
          onChange={(value) =>
            void navigate({
              to: `/tenants/${tenant}/adapters/${adapter.name}${value === "versions" ? "" : `/${value}`}`,
            })
          }
          keepMounted={false}
        >
          <Tabs.List>
            {TABS.filter(({ needs }) => needs === null || adapter.can.includes(needs)).map(
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
    </>
  );
}

function Actions({ adapter }: { adapter: Adapter }) {
  const { tenant } = useAdapterPath();
  return (
    <Group gap="xs">
      {adapter.can.includes("upload") && (
        <Button component={Link} to={`/tenants/${tenant}/upload`} search={{ name: adapter.name } as never}>
          Upload a version…
        </Button>
      )}
      {adapter.aliases.live !== undefined && (
        <Button
          component={Link}
          variant="default"
          to={`/tenants/${tenant}/playground`}
          search={{ model: adapter.name } as never}
        >
          Chat with it
        </Button>
      )}
      <RestoreButton can={adapter.can} name={adapter.name} />
      <RetireButton can={adapter.can} name={adapter.name} />
      <PurgeButton can={adapter.can} name={adapter.name} />
    </Group>
  );
}
