import { Select, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Moment, Mono } from "../parts/figures";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import type { VersionsSearch } from "../routes/adapters";
import { useAdapterPath } from "./adapter-data";
import { VersionState } from "./adapter-state";

type Version = Schemas["VersionOut"];

const COLUMNS: Column<Version>[] = [
  { title: "Version", cell: (version) => <Mono>{version.id}</Mono> },
  { title: "State", cell: (version) => <VersionState state={version.state} /> },
  { title: "Aliases", cell: (version) => <Text size="sm">{version.aliases.join(", ")}</Text> },
  { title: "Uploaded", cell: (version) => <Moment at={version.created_at} /> },
];

export function AdapterVersions() {
  const path = useAdapterPath();
  const search = useSearch({ from: "/inside/tenants/$tenant/adapters/$name/" });
  const navigate = useNavigate({ from: "/tenants/$tenant/adapters/$name/" });
  const query = { limit: 50, cursor: search.cursor ?? null, state: search.state ?? null };
  const rows = useQuery({
    queryKey: ["tenant", path.tenant, "adapter", path.name, "versions", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/adapters/{name}/versions", { params: { path, query } })),
    placeholderData: keepPreviousData,
  });
  return (
    <>
      <Select
        label="State"
        placeholder="All but retired"
        clearable
        clearButtonProps={{ "aria-label": "All but retired" }}
        data={["uploaded", "proving", "ready", "rejected", "retired"]}
        value={search.state ?? null}
        onChange={(state) =>
          void navigate({ search: { state: (state as VersionsSearch["state"]) ?? undefined }, replace: true })
        }
        w={{ base: "100%", xs: 180 }}
        mb="md"
      />
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
