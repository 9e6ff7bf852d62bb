import { Group, Select, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Bytes, Moment } from "../parts/figures";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import type { VersionsSearch } from "../routes/adapters";
import { useAdapter, useAdapterPath } from "./adapter-data";
import { VersionState } from "./adapter-state";
import { Aliases, VersionLink } from "./version-parts";

type Version = Schemas["VersionOut"];

const LOOK_MS = 3_000; // while something is being proved
const ANY = "there";
const STATES = [
  { value: ANY, label: "all but retired" },
  ...["uploaded", "proving", "ready", "rejected", "retired"].map((value) => ({ value, label: value })),
];

const COLUMNS: Column<Version>[] = [
  { title: "Version", cell: (version) => <VersionLink version={version} /> },
  { title: "State", cell: (version) => <State version={version} /> },
  { title: "Aliases", cell: (version) => <Aliases names={version.aliases} /> },
  { title: "Ranks", cell: (version) => <span className="figures">{version.ranks.join(", ")}</span> },
  { title: "Size", end: true, cell: (version) => <Bytes value={version.bytes} /> },
  { title: "Uploaded", cell: (version) => <Moment at={version.created_at} /> },
];

function State({ version }: { version: Version }) {
  return (
    <>
      <VersionState state={version.lost_at === null ? version.state : "lost"} />
      {version.reason !== null && (
        <Text size="xs" c="dimmed" lineClamp={2}>
          {version.reason}
        </Text>
      )}
    </>
  );
}

export function AdapterVersions() {
  const path = useAdapterPath();
  const adapter = useAdapter();
  const search = useSearch({ from: "/inside/tenants/$tenant/adapters/$name/" });
  const navigate = useNavigate({ from: "/tenants/$tenant/adapters/$name/" });
  const state = search.state ?? (adapter.data?.state === "retired" ? "retired" : null);
  const query = { limit: 50, cursor: search.cursor ?? null, state };
  const rows = useQuery({
    queryKey: ["tenant", path.tenant, "adapter", path.name, "versions", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/adapters/{name}/versions", { params: { path, query } })),
    placeholderData: keepPreviousData,
    refetchInterval: (asked) => (asked.state.data?.data.some(isAtIt) ? LOOK_MS : false),
  });
  return (
    <>
      <Group mb="md">
        <Select
          label="State"
          allowDeselect={false}
          data={STATES}
          value={state ?? ANY}
          onChange={(to) =>
            void navigate({
              search: { state: to === ANY ? undefined : (to as VersionsSearch["state"]) },
              replace: true,
              resetScroll: false,
            })
          }
          w={{ base: "100%", xs: 180 }}
        />
      </Group>
      <DataTable
        caption="Versions, newest first"
        columns={COLUMNS}
        rows={rows}
        rowKey={(version) => version.id}
        cursor={search.cursor}
        empty={<Empty title="No version is like this" />}
      />
    </>
  );
}

function isAtIt({ state }: Version): boolean {
  return state === "uploaded" || state === "proving";
}
