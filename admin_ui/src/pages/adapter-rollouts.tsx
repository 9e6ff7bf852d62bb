import { Anchor, Badge, Button, Group, Stack, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { api, heard } from "../api/client";
import { Count, Moment } from "../parts/figures";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { useAdapter, useAdapterPath } from "./adapter-data";
import { useAdapterKey } from "./alias-data";
import { BeginRollout } from "./rollout-begin";
import { isActive, type Rollout, STATE_COLORS } from "./rollout-words";

const LOOK_MS = 5_000; // while the page is seen

export function AdapterRollouts() {
  const path = useAdapterPath();
  const adapter = useAdapter();
  const search = useSearch({ from: "/inside/tenants/$tenant/adapters/$name/rollouts" });
  const navigate = useNavigate({ from: "/tenants/$tenant/adapters/$name/rollouts" });
  const query = { limit: 50, cursor: search.cursor ?? null };
  const rows = useQuery({
    queryKey: [...useAdapterKey(), "rollouts", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/adapters/{name}/rollouts", { params: { path, query } })),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.data.some(isActive) ? LOOK_MS : false),
  });
  const begin = (alias: string | undefined) =>
    void navigate({ search: (before) => ({ ...before, begin: alias }), resetScroll: false });
  const may = adapter.data?.can.includes("begin_rollout") ?? false;
  return (
    <Stack>
      <Group justify="space-between" align="end">
        <Text size="sm" c="dimmed" maw={640}>
          A rollout gives a new version a growing share of an alias, and takes the alias back by itself when
          the new version does worse.
        </Text>
        {may && <Button onClick={() => begin("live")}>Begin rollout…</Button>}
      </Group>
      <DataTable
        caption="Rollouts, newest first"
        columns={columns(path)}
        rows={rows}
        rowKey={(rollout) => rollout.id}
        cursor={search.cursor}
        empty={
          <Empty
            title="No version was rolled out yet"
            command={`motet adapters rollout start ${path.name} ${adapter.data?.latest ?? 2}`}
          />
        }
      />
      {search.begin !== undefined && may && (
        <BeginRollout key={search.begin} alias={search.begin} onClose={() => begin(undefined)} />
      )}
    </Stack>
  );
}

function columns(path: { tenant: string; name: string }): Column<Rollout>[] {
  return [
    {
      title: "Rollout",
      cell: (rollout) => (
        <Anchor
          component={Link}
          to={`/tenants/${path.tenant}/adapters/${path.name}/rollouts/${rollout.id}`}
          className="figures"
        >
          {`${rollout.alias}: ${rollout.from_version} → ${rollout.to_version}`}
        </Anchor>
      ),
    },
    {
      title: "State",
      cell: (rollout) => <Badge color={STATE_COLORS[rollout.state]}>{rollout.state}</Badge>,
    },
    { title: "Step", cell: (rollout) => <StepReached rollout={rollout} /> },
    {
      title: "New, requests",
      end: true,
      cell: (rollout) => <Count value={rollout.new.requests} />,
    },
    { title: "New, failed", end: true, cell: (rollout) => <Count value={rollout.new.failed} /> },
    { title: "Begun", cell: (rollout) => <Moment at={rollout.created_at} /> },
    { title: "Ended", cell: (rollout) => <Moment at={rollout.ended_at} absent="not yet" /> },
    { title: "Why", cell: (rollout) => <Why rollout={rollout} /> },
  ];
}

function StepReached({ rollout }: { rollout: Rollout }) {
  const weight = rollout.steps[rollout.step - 1]?.weight;
  return (
    <Text span size="sm" className="figures">
      {`${rollout.step} of ${rollout.steps.length} (${weight}\u00a0%)`}
    </Text>
  );
}

function Why({ rollout }: { rollout: Rollout }) {
  return (
    <Text span size="sm" lineClamp={2} miw={180}>
      {typeof rollout.reason?.message === "string" ? rollout.reason.message : ""}
    </Text>
  );
}
