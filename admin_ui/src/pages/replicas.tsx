import { Badge, Button, Group, Text } from "@mantine/core";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { Confirm } from "../parts/confirm";
import { Count, Moment, Mono } from "../parts/figures";
import { Page } from "../parts/page";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";

type Replica = Schemas["ReplicaOut"];

const LOOK_MS = 5_000; // while the page is seen
const HEALTH = { ready: "teal", down: "red", unfit: "orange", unknown: "gray" } as const;

const COLUMNS: Column<Replica>[] = [
  { title: "Replica", cell: (replica) => <Mono>{replica.url}</Mono> },
  {
    title: "Health",
    cell: (replica) => (
      <Group gap={4}>
        <Badge color={HEALTH[replica.health]}>{replica.health}</Badge>
        {replica.reason !== null && <Text size="xs">{replica.reason}</Text>}
      </Group>
    ),
  },
  {
    title: "State",
    cell: (replica) => <Badge color={replica.state === "up" ? "teal" : "orange"}>{replica.state}</Badge>,
  },
  { title: "Breaker", cell: (replica) => <Text size="sm">{replica.breaker ?? "unknown"}</Text> },
  { title: "Requests", end: true, cell: (replica) => <Count value={replica.in_flight} /> },
  { title: "Tokens in flight", end: true, cell: (replica) => <Count value={replica.in_flight_tokens} /> },
  {
    title: "Adapters, slots / memory",
    end: true,
    cell: (replica) => (
      <span className="figures">
        {replica.adapters_in_slots} / {replica.adapters_in_memory}
      </span>
    ),
  },
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

function DrainOrResume({ replica }: { replica: Replica }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState<"drain" | "resume" | null>(null);
  const change = async (state: "up" | "draining") => {
    const params = { path: { replica: replica.id } };
    await heard(api.PATCH("/api/v1/replicas/{replica}", { params, body: { state } }));
    await client.invalidateQueries({ queryKey: ["replicas"] });
  };
  return (
    <>
      {replica.can.includes("drain") && (
        <Button size="xs" variant="default" onClick={() => setAsking("drain")}>
          Drain…
        </Button>
      )}
      {replica.can.includes("resume") && (
        <Button size="xs" variant="default" onClick={() => setAsking("resume")}>
          Take back…
        </Button>
      )}
      {asking === "drain" && (
        <Confirm
          title="Drain this replica"
          effect={`${replica.url}: nothing new goes there; its ${replica.in_flight} requests end there.`}
          action="Drain"
          onConfirm={() => change("draining")}
          onClose={() => setAsking(null)}
        />
      )}
      {asking === "resume" && (
        <Confirm
          title="Take this replica back"
          effect={`${replica.url}: requests go there again.`}
          action="Take back"
          dangerous={false}
          onConfirm={() => change("up")}
          onClose={() => setAsking(null)}
        />
      )}
    </>
  );
}
