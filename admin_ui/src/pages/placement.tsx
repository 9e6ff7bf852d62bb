import { Anchor, Button, Group, Select, Stack, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { of } from "../live/fresh";
import { LiveBadge, useLook } from "../live/live";
import { Mono } from "../parts/figures";
import { TextFilter } from "../parts/filters";
import { Page } from "../parts/page";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import type { PlacementSearch } from "../routes/fleet";
import { PlaceAdapter } from "./placement-edit";
import { MovesCard } from "./placement-moves";
import { Address, shortUrl, TierLegend, TierMark } from "./tier";

type Placed = Schemas["PlacedAdapter"];
type Replica = Schemas["ReplicaOut"];

const LOOK_MS = 5_000;
const MOST_COLUMNS = 200;

export function PlacementPage() {
  const search = useSearch({ from: "/inside/placement" });
  const look = useLook(LOOK_MS);
  const [placing, setPlacing] = useState<Placed | null>(null);
  const query = {
    limit: 50,
    cursor: search.cursor ?? null,
    name_prefix: search.name ?? null,
    tenant: search.tenant ?? null,
    replica: search.replica ?? null,
    tier: search.tier ?? null,
    wanted: search.wanted ?? null,
  };
  const rows = useQuery({
    queryKey: ["placement", query],
    queryFn: () => heard(api.GET("/api/v1/placement", { params: { query } })),
    placeholderData: keepPreviousData,
    refetchInterval: look,
    meta: of("move", "placement", "alias", "adapter", "replica", "pool_rules"),
  });
  const replicas = useReplicas();
  const shown =
    search.replica === undefined ? replicas : replicas.filter((one) => one.url === search.replica);
  return (
    <Page
      title="Placement"
      aside={<LiveBadge />}
      calls={[
        { method: "GET", path: "/api/v1/placement" },
        { method: "GET", path: "/api/v1/placement/moves" },
        { method: "GET", path: "/api/v1/replicas" },
        { method: "GET", path: "/api/v1/changes" },
        {
          method: "PUT",
          path: "/api/v1/tenants/TENANT/adapters/ADAPTER/placement",
          body: { replicas: 2, pinned: true },
        },
      ]}
    >
      <Filters search={search} replicas={replicas} />
      <TierLegend />
      <DataTable
        caption="Adapters by replica: where each is wanted, and where it is"
        columns={columnsOf(shown, setPlacing)}
        rows={rows}
        rowKey={(placed) => placed.artefact}
        cursor={search.cursor}
        empty={<NothingPlaced filtered={isFiltered(search)} />}
      />
      <MovesCard />
      {placing?.adapter != null && placing.tenant !== null && (
        <PlaceAdapter tenant={placing.tenant} adapter={placing.adapter} onClose={() => setPlacing(null)} />
      )}
    </Page>
  );
}

function useReplicas(): Replica[] {
  const query = { limit: MOST_COLUMNS, cursor: null };
  const look = useLook(LOOK_MS);
  const found = useQuery({
    queryKey: ["replicas", "columns", query],
    queryFn: () => heard(api.GET("/api/v1/replicas", { params: { query } })),
    placeholderData: keepPreviousData,
    refetchInterval: look,
    meta: of("replica", "move"),
  });
  return found.data?.data ?? [];
}

function isFiltered(search: PlacementSearch): boolean {
  return Object.entries(search).some(([name, value]) => name !== "cursor" && value !== undefined);
}

function NothingPlaced({ filtered }: { filtered: boolean }) {
  return filtered ? (
    <Empty title="No adapter is like this" />
  ) : (
    <Empty
      title="No adapter lies in any replica's memory, and none is wanted there"
      command="motet placement pin ADAPTER --tenant TENANT --replicas 2"
    >
      <Text size="sm">They come with their first requests; or have one lie ready before:</Text>
    </Empty>
  );
}

function Filters({ search, replicas }: { search: PlacementSearch; replicas: Replica[] }) {
  const navigate = useNavigate({ from: "/placement" });
  const filter = (next: Partial<PlacementSearch>) =>
    void navigate({
      search: (before) => ({ ...before, ...next, cursor: undefined }),
      replace: true,
      resetScroll: false,
    });
  return (
    <Group align="end" gap="sm">
      <TextFilter label="Adapter begins with" value={search.name} onChange={(name) => filter({ name })} />
      <Choice
        label="In memory of"
        any="Any replica"
        data={replicas.map((one) => ({ value: one.url, label: shortUrl(one.url) }))}
        value={search.replica}
        onChange={(replica) => filter({ replica })}
      />
      <Choice
        label="Tier"
        any="Any tier"
        data={[
          { value: "device", label: "slot" },
          { value: "host", label: "memory" },
        ]}
        value={search.tier}
        onChange={(tier) => filter({ tier: tier as PlacementSearch["tier"] })}
      />
      <Choice
        label="Wanted"
        any="Wanted or not"
        data={[
          { value: "true", label: "placed by somebody" },
          { value: "false", label: "by traffic only" },
        ]}
        value={search.wanted?.toString()}
        onChange={(wanted) => filter({ wanted: wanted === undefined ? undefined : wanted === "true" })}
      />
      {search.tenant !== undefined && (
        <Button variant="default" onClick={() => filter({ tenant: undefined })}>
          Of all tenants
        </Button>
      )}
    </Group>
  );
}

interface ChoiceProps {
  label: string;
  any: string;
  data: { value: string; label: string }[];
  value: string | undefined;
  onChange: (value: string | undefined) => void;
}

function Choice({ label, any, data, value, onChange }: ChoiceProps) {
  return (
    <Select
      label={label}
      placeholder={any}
      clearable
      clearButtonProps={{ "aria-label": any }}
      data={data}
      value={value ?? null}
      onChange={(chosen) => onChange(chosen ?? undefined)}
      w={{ base: "100%", xs: 180 }}
    />
  );
}

function columnsOf(replicas: Replica[], place: (placed: Placed) => void): Column<Placed>[] {
  return [
    { title: "Adapter", cell: (placed) => <Who placed={placed} /> },
    { title: "Wanted", cell: (placed) => <WantedText placed={placed} /> },
    { title: "Has it", cell: (placed) => <HeldText placed={placed} /> },
    ...replicas.map((replica) => ({
      title: replica.url,
      head: <Head replica={replica} />,
      cell: (placed: Placed) => (
        <TierMark
          tier={placed.held.find((one) => one.replica === replica.url)?.tier ?? "store"}
          home={placed.homes.includes(replica.url)}
        />
      ),
    })),
    {
      title: "Actions",
      end: true,
      cell: (placed) =>
        placed.can.includes("place") && (
          <Button
            size="xs"
            variant="default"
            aria-label={`Place ${placed.adapter}…`}
            onClick={() => place(placed)}
          >
            Place…
          </Button>
        ),
    },
  ];
}

/** A replica over its column, with what it has room for. */
function Head({ replica }: { replica: Replica }) {
  const slots = `${replica.adapters_in_slots}${replica.num_slots === null ? "" : ` of ${replica.num_slots}`} slots`;
  const well = replica.health === "ready" && replica.state === "up";
  return (
    <Stack gap={0}>
      <Anchor component={Link} to={`/replicas/${replica.id}`} size="xs">
        <Address url={replica.url} />
      </Anchor>
      <Text size="xs" c={well ? "dimmed" : "red"} fw={400} className="figures">
        {well ? slots : replica.health === "ready" ? replica.state : replica.health}
      </Text>
    </Stack>
  );
}

function Who({ placed }: { placed: Placed }) {
  if (placed.adapter === null || placed.tenant === null) {
    return (
      <Text size="sm" c="dimmed" title={placed.artefact}>
        {placed.artefact.slice(0, 12)}…, of no version any more
      </Text>
    );
  }
  return (
    <Stack gap={0}>
      <Anchor component={Link} to={`/tenants/${placed.tenant}/adapters/${placed.adapter}`} size="sm">
        {placed.adapter}@{placed.version}
      </Anchor>
      <Text size="xs" c="dimmed">
        <Mono>{placed.tenant}</Mono>
      </Text>
    </Stack>
  );
}

function WantedText({ placed }: { placed: Placed }) {
  const { wanted } = placed;
  if (wanted === null) {
    return (
      <Text size="sm" c="dimmed">
        by traffic
      </Text>
    );
  }
  const where = wanted.tier === "device" ? "in a slot" : "in memory";
  return (
    <Text size="sm">
      {where} on {wanted.replicas}
      {wanted.pinned ? ", pinned" : ", brought back"}
      {!wanted.within_quota && (
        <Text span c="red" size="sm">
          , over quota
        </Text>
      )}
    </Text>
  );
}

function HeldText({ placed }: { placed: Placed }) {
  const enough = placed.wanted?.tier === "device" ? ["device"] : ["device", "host"];
  const held = placed.held.filter((one) => enough.includes(one.tier)).length;
  const short = placed.wanted !== null && held < placed.wanted.replicas;
  return (
    <Text size="sm" className="figures" c={short ? "red" : undefined}>
      {held}
      {placed.wanted !== null && ` of ${placed.wanted.replicas}`}
      {short && ", short"}
    </Text>
  );
}
