import { Anchor, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { api, heard } from "../api/client";
import { LiveBadge } from "../live/live";
import { countText } from "../parts/figures";
import { Page } from "../parts/page";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { BreakerMark, DrainOrResume, DrainState, Health, type Replica, Used, Weights } from "./replica-parts";
import { Address } from "./tier";

const LOOK_MS = 5_000; // its load, which nobody is told of

const COLUMNS: Column<Replica>[] = [
  {
    title: "Replica",
    cell: (replica) => (
      <>
        <Anchor component={Link} to={`/replicas/${replica.id}`}>
          <Address url={replica.url} />
        </Anchor>
        <Text size="xs" c="dimmed">
          {replica.pools.join(", ")}
        </Text>
      </>
    ),
  },
  { title: "Health", cell: (replica) => <Health replica={replica} /> },
  { title: "State", cell: (replica) => <DrainState replica={replica} /> },
  { title: "Breaker", cell: (replica) => <BreakerMark replica={replica} /> },
  {
    title: "Load",
    end: true,
    cell: (replica) => (
      <Two
        first={countText(replica.in_flight, "requests")}
        then={countText(replica.in_flight_tokens, "tokens")}
      />
    ),
  },
  {
    title: "Its queue",
    end: true,
    cell: (replica) => (
      <Two
        first={replica.waiting === null ? "not said" : countText(replica.waiting, "waiting")}
        then={replica.waiting_tokens === null ? "" : countText(replica.waiting_tokens, "tokens")}
      />
    ),
  },
  {
    title: "Adapters in slots",
    cell: (replica) => (
      <>
        <Used what="Slots" used={replica.adapters_in_slots} all={replica.num_slots} />
        <Text size="xs" c="dimmed" className="figures">
          {countText(replica.adapters_in_memory)} in memory
        </Text>
      </>
    ),
  },
  {
    title: "KV blocks",
    cell: (replica) => <Used what="KV blocks" used={replica.kv_blocks_used} all={replica.kv_blocks} />,
  },
  { title: "Weights", cell: (replica) => <Weights digest={replica.base_digest} /> },
  { title: "Actions", end: true, cell: (replica) => <DrainOrResume replica={replica} /> },
];

function Two({ first, then }: { first: string; then: string }) {
  return (
    <>
      <Text size="sm" className="figures">
        {first}
      </Text>
      <Text size="xs" c="dimmed" className="figures">
        {then}
      </Text>
    </>
  );
}

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
