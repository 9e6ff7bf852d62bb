import { Anchor, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { of } from "../live/fresh";
import { Mono } from "../parts/figures";
import { Page } from "../parts/page";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";

type Row = Schemas["LeftBehind"];

const COLUMNS: Column<Row>[] = [
  {
    title: "Version",
    cell: (row) => (
      <Anchor component={Link} to={`/tenants/${row.tenant}/adapters/${row.id.split("@")[0]}`} size="sm">
        {row.id}
      </Anchor>
    ),
  },
  {
    title: "Tenant",
    cell: (row) => (
      <Anchor component={Link} to={`/tenants/${row.tenant}`} size="sm">
        <Mono>{row.tenant}</Mono>
      </Anchor>
    ),
  },
  {
    title: "Why",
    cell: (row) => (
      <Text size="sm">{row.reason === "other_base" ? "trained on another base" : row.reason}</Text>
    ),
  },
];

export function LeftBehindPage() {
  const { base } = useParams({ from: "/inside/bases/$base/left-behind" });
  const { digest, cursor } = useSearch({ from: "/inside/bases/$base/left-behind" });
  const query = { limit: 50, cursor: cursor ?? null, base_digest: digest ?? null };
  const rows = useQuery({
    queryKey: ["bases", base, "left-behind", query],
    queryFn: () =>
      heard(api.GET("/api/v1/bases/{base_id}/left-behind", { params: { path: { base_id: base }, query } })),
    placeholderData: keepPreviousData,
    meta: of("base", "adapter"),
  });
  return (
    <Page title="Left behind" calls={[{ method: "GET", path: `/api/v1/bases/${base}/left-behind` }]}>
      <Anchor component={Link} to="/bases" size="sm">
        All bases
      </Anchor>
      <Text size="sm">
        {digest === undefined
          ? "Versions that may serve, but not on this base."
          : `Versions of this base that failed on the weights ${digest.slice(0, 12)}.`}
      </Text>
      <DataTable
        caption="Versions that can't follow"
        columns={COLUMNS}
        rows={rows}
        rowKey={(row) => `${row.tenant} ${row.id}`}
        cursor={cursor}
        empty={<Empty title="All of them can follow" />}
      />
    </Page>
  );
}
