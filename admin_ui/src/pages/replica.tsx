import { Anchor, Button, Card, Group, SimpleGrid, Stack, Table, TagsInput, Title } from "@mantine/core";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard, type Schemas, tagged } from "../api/client";
import { of } from "../live/fresh";
import { leavingOf } from "../live/leaving";
import { LiveBadge, useLook } from "../live/live";
import { Confirm } from "../parts/confirm";
import { ConflictNotice, SaveBar, useEdit } from "../parts/edits";
import { countText, Moment, Mono } from "../parts/figures";
import { Page } from "../parts/page";
import { SecretOnce } from "../parts/secret";
import { Empty, Failed, Read } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { BreakerMark, DrainOrResume, DrainState, Health, type Replica, Used, Weights } from "./replica-parts";
import { Row } from "./tenant-overview";
import { shortUrl, TierMark } from "./tier";

const LOOK_MS = 5_000;

export function ReplicaPage() {
  const { replica } = useParams({ from: "/inside/replicas/$replica" });
  const read = useQuery({
    queryKey: ["replicas", "one", replica],
    queryFn: () => tagged(api.GET("/api/v1/replicas/{replica}", { params: { path: { replica } } })),
    refetchInterval: LOOK_MS,
  });
  const path = `/api/v1/replicas/${replica}`;
  const url = read.data?.data.url;
  return (
    <Page
      title={url === undefined ? "Replica" : shortUrl(url)}
      aside={<LiveBadge />}
      calls={[
        { method: "GET", path },
        { method: "PATCH", path, body: { pools: ["general"] } },
        { method: "POST", path: `${path}/token`, body: {} },
        { method: "GET", path: `/api/v1/placement?replica=${encodeURIComponent(url ?? "URL")}` },
      ]}
    >
      <Anchor component={Link} to="/replicas" size="sm">
        All replicas
      </Anchor>
      <Read of={read} what="the replica">
        {({ data, etag }) => (
          <>
            <SimpleGrid cols={{ base: 1, md: 2 }}>
              <About replica={data} />
              <Load replica={data} />
              {data.can.includes("change_pools") && <Pools key={data.id} replica={data} etag={etag} />}
              <Actions replica={data} />
            </SimpleGrid>
            <Held url={data.url} />
          </>
        )}
      </Read>
    </Page>
  );
}

function About({ replica }: { replica: Replica }) {
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        About
      </Title>
      <Table variant="vertical" layout="auto">
        <Table.Tbody>
          <Row name="Health">
            <Health replica={replica} />
          </Row>
          <Row name="State">
            <DrainState replica={replica} />
          </Row>
          <Row name="Breaker">
            <BreakerMark replica={replica} />
          </Row>
          <Row name="URL">
            <Mono>{replica.url}</Mono>
          </Row>
          <Row name="Weights">
            <Weights digest={replica.base_digest} />
          </Row>
          <Row name="Listed by">{SOURCES[replica.source]}</Row>
          <Row name="Token">{replica.own_token ? "its own" : "the one that all share"}</Row>
          <Row name="Token changed">
            <Moment at={replica.token_changed_at} />
          </Row>
          <Row name="Seen">
            <Moment at={replica.seen_at} />
          </Row>
        </Table.Tbody>
      </Table>
    </Card>
  );
}

const SOURCES: Record<Replica["source"], string> = {
  listed: "the settings",
  operator: "an operator",
  self: "itself",
};

function Load({ replica }: { replica: Replica }) {
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Load
      </Title>
      <Table variant="vertical" layout="auto">
        <Table.Tbody>
          <Row name="Requests">{countText(replica.in_flight)}</Row>
          <Row name="Tokens in flight">{countText(replica.in_flight_tokens, "tokens")}</Row>
          <Row name="It runs">{said(replica.running, "sequences")}</Row>
          <Row name="Its queue">
            {said(replica.waiting, "waiting")}
            {replica.waiting_tokens !== null && `, ${countText(replica.waiting_tokens, "tokens")}`}
          </Row>
          <Row name="Slots">
            <Used what="Slots" used={replica.adapters_in_slots} all={replica.num_slots} />
          </Row>
          <Row name="Adapters in memory">{countText(replica.adapters_in_memory)}</Row>
          <Row name="KV blocks">
            <Used what="KV blocks" used={replica.kv_blocks_used} all={replica.kv_blocks} />
          </Row>
        </Table.Tbody>
      </Table>
    </Card>
  );
}

function said(value: number | null, unit: string): string {
  return value === null ? "not said" : countText(value, unit);
}

interface PoolsValues extends Record<string, unknown> {
  pools: string[];
}

const poolsOf = (found: Record<string, unknown>): PoolsValues => ({ pools: found.pools as string[] });

function Pools({ replica, etag }: { replica: Replica; etag: string | null }) {
  const client = useQueryClient();
  const edit = useEdit(
    { values: poolsOf({ ...replica }), etag },
    async (patch, tag) => {
      const params = { path: { replica: replica.id }, header: tag === null ? {} : { "if-match": tag } };
      const answer = await tagged(api.PATCH("/api/v1/replicas/{replica}", { params, body: patch }));
      await client.invalidateQueries({ queryKey: ["replicas"] });
      return { values: poolsOf({ ...answer.data }), etag: answer.etag };
    },
    poolsOf,
  );
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Pools
      </Title>
      <ConflictNotice edit={edit} />
      <TagsInput
        label="It is in"
        description="General takes what no rule sends elsewhere"
        maxTags={8}
        value={edit.values.pools}
        onChange={(pools) => edit.set("pools", pools)}
      />
      {edit.failure !== null && <Failed error={edit.failure} />}
      <SaveBar edit={edit} />
    </Card>
  );
}

function Actions({ replica }: { replica: Replica }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [asking, setAsking] = useState<"token" | "remove" | null>(null);
  const [secret, setSecret] = useState<string | null>(null);
  const params = { path: { replica: replica.id } };
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Actions
      </Title>
      <Group>
        <DrainOrResume replica={replica} />
        {replica.can.includes("change_token") && (
          <Button size="xs" variant="default" onClick={() => setAsking("token")}>
            Change token…
          </Button>
        )}
        {replica.can.includes("remove") && (
          <Button size="xs" color="red" variant="light" onClick={() => setAsking("remove")}>
            Remove…
          </Button>
        )}
      </Group>
      {asking === "token" && (
        <Confirm
          title="Change its token"
          effect="A new one is made and shown once. The one before is still sent where the replica refuses the new one."
          action="Change token"
          dangerous={false}
          onConfirm={async () => {
            const made = await heard(api.POST("/api/v1/replicas/{replica}/token", { params, body: {} }));
            setSecret(made.token);
            await client.invalidateQueries({ queryKey: ["replicas"] });
          }}
          onClose={() => setAsking(null)}
        />
      )}
      {asking === "remove" && (
        <Confirm
          title="Remove this replica"
          effect={`Nothing new goes there; its ${replica.in_flight} requests end there. ${replica.adapters_in_memory} adapters have one replica less.`}
          typed={shortUrl(replica.url)}
          action="Remove"
          onConfirm={async () => {
            await leavingOf(replica.id, async () => {
              await heard(api.DELETE("/api/v1/replicas/{replica}", { params }));
              await navigate({ to: "/replicas" });
            });
            await client.invalidateQueries({ queryKey: ["replicas"] });
          }}
          onClose={() => setAsking(null)}
        />
      )}
      {secret !== null && (
        <SecretOnce
          title={`Token of ${shortUrl(replica.url)}`}
          secret={secret}
          onClose={() => setSecret(null)}
        />
      )}
    </Card>
  );
}

type Placed = Schemas["PlacedAdapter"];

function Held({ url }: { url: string }) {
  const { cursor } = useSearch({ from: "/inside/replicas/$replica" });
  const look = useLook(LOOK_MS);
  const query = { limit: 25, cursor: cursor ?? null, replica: url };
  const rows = useQuery({
    queryKey: ["placement", query],
    queryFn: () => heard(api.GET("/api/v1/placement", { params: { query } })),
    placeholderData: keepPreviousData,
    refetchInterval: look,
    meta: of("move", "placement", "adapter"),
  });
  const columns: Column<Placed>[] = [
    {
      title: "Adapter",
      cell: (placed) =>
        placed.adapter === null || placed.tenant === null ? (
          <Mono>{`${placed.artefact.slice(0, 12)}…`}</Mono>
        ) : (
          <Anchor component={Link} to={`/tenants/${placed.tenant}/adapters/${placed.adapter}`} size="sm">
            {placed.adapter}@{placed.version}
          </Anchor>
        ),
    },
    {
      title: "Lies",
      cell: (placed) => (
        <TierMark
          tier={placed.held.find((one) => one.replica === url)?.tier ?? "store"}
          home={placed.homes.includes(url)}
        />
      ),
    },
    { title: "On replicas", end: true, cell: (placed) => countText(placed.held.length) },
  ];
  return (
    <Stack gap="xs">
      <Title order={2} size="h4">
        Adapters in its memory
      </Title>
      <DataTable
        caption="Adapters in its memory"
        columns={columns}
        rows={rows}
        rowKey={(placed) => placed.artefact}
        cursor={cursor}
        empty={<Empty title="It holds no adapter now" />}
      />
    </Stack>
  );
}
