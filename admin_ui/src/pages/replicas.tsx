import { Anchor, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { api, heard } from "../api/client";
import { LiveBadge } from "../live/live";
import { Count, Moment, Mono } from "../parts/figures";
import { Page } from "../parts/page";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { BreakerMark, DrainOrResume, DrainState, Health, type Replica, Used, Weights } from "./replica-parts";
import { shortUrl } from "./tier";

const LOOK_MS = 5_000; // its load, which nobody is told of

const COLUMNS: Column<Replica>[] = [
  {
    title: "Replica",
    cell: (replica) => (
      <Anchor component={Link} to={`/replicas/${replica.id}`} title={replica.url}>
        <Mono>{shortUrl(replica.url)}</Mono>
      </Anchor>
    ),
  },
  { title: "Health", cell: (replica) => <Health replica={replica} /> },
  { title: "State", cell: (replica) => <DrainState replica={replica} /> },
  { title: "Breaker", cell: (replica) => <BreakerMark replica={replica} /> },
  { title: "Requests", end: true, cell: (replica) => <Count value={replica.in_flight} /> },
  { title: "Tokens in flight", end: true, cell: (replica) => <Count value={replica.in_flight_tokens} /> },
  {
    title: "Its queue",
    end: true,
    cell: (replica) =>
      replica.waiting === null ? <Text size="sm">not said</Text> : <Count value={replica.waiting} />,
  },
  {
    title: "Slots",
    cell: (replica) => <Used what="Slots" used={replica.adapters_in_slots} all={replica.num_slots} />,
  },
  { title: "Adapters in memory", end: true, cell: (replica) => <Count value={replica.adapters_in_memory} /> },
  {
    title: "KV blocks",
    cell: (replica) => <Used what="KV blocks" used={replica.kv_blocks_used} all={replica.kv_blocks} />,
  },
  { title: "Weights", cell: (replica) => <Weights digest={replica.base_digest} /> },
  { title: "Pools", cell: (replica) => <Text size="sm">{replica.pools.join(", ")}</Text> },
  { title: "Seen", cell: (replica) => <Moment at={replica.seen_at} /> },
  { title: "Actions", end: true, cell: (replica) => <DrainOrResume replica={replica} /> },
];

export function ReplicasPage() {
  const search = useSearch({ from: "/inside/replicas" });
  const query = { limit: 50, cursor: search.cursor ?? null };
  const rows = useQuery({
    queryKey: ["replicas", query],
    queryFn: () => heard(api.GET("/api/v1/replicas", { params: { query } })),
    placeholderData: keepPreviousData,
    refetchInterval: LOOK_MS,
  });
  return (
    <Page
      title="Replicas"
      aside={<LiveBadge />}
      calls={[
        { method: "GET", path: "/api/v1/replicas" },
        { method: "PATCH", path: "/api/v1/replicas/REPLICA", body: { state: "draining" } },
      ]}
    >
      <DataTable
        caption="Replicas, as the worker that answers sees them"
        columns={COLUMNS}
        rows={rows}
        rowKey={(replica) => replica.id}
        cursor={search.cursor}
        empty={<Empty title="There is no replica yet" command="motet replicas add http://10.0.0.5:8100" />}
      />
    </Page>
  );
}
