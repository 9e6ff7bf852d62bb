import { Anchor, Button, Group, Select, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Bytes, countText, Mono } from "../parts/figures";
import { TextFilter } from "../parts/filters";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { OTHERS } from "../parts/traffic-steps";
import type { AdaptersSearch } from "../routes/adapters";
import { useTraffic } from "./adapter-data";
import { VersionState } from "./adapter-state";
import { SharedAdapters } from "./shared-adapters";
import { useTenant, useTenantId } from "./tenant-data";
import { TierMark } from "./tier";

type Adapter = Schemas["AdapterOut"];
type Traffic = Schemas["RequestMetrics"];

const LOOK_MS = 30_000; // where they lie, which members are not told of

export function AdaptersPage() {
  const tenant = useTenantId();
  const found = useTenant().data;
  const search = useSearch({ from: "/inside/tenants/$tenant/adapters" });
  const navigate = useNavigate({ from: "/tenants/$tenant/adapters" });
  const query = {
    limit: 50,
    cursor: search.cursor ?? null,
    name_prefix: search.name ?? null,
    state: search.state ?? null,
  };
  const rows = useQuery({
    queryKey: ["tenant", tenant, "adapters", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/adapters", { params: { path: { tenant }, query } })),
    placeholderData: keepPreviousData,
    refetchInterval: LOOK_MS,
  });
  const traffic = useTraffic(tenant);
  const filter = (next: Partial<AdaptersSearch>) =>
    void navigate({
      search: (before) => ({ ...before, ...next, cursor: undefined }),
      replace: true,
      resetScroll: false,
    });
  const filtered = search.name !== undefined || search.state !== undefined;
  return (
    <>
      <Group align="end" justify="space-between" mb="md">
        <Group align="end" gap="sm">
          <TextFilter label="Name begins with" value={search.name} onChange={(name) => filter({ name })} />
          <Select
            label="Show"
            allowDeselect={false}
            data={[
              { value: "there", label: "in use" },
              { value: "retired", label: "retired" },
            ]}
            value={search.state ?? "there"}
            onChange={(state) => filter({ state: state === "retired" ? state : undefined })}
            w={{ base: "100%", xs: 160 }}
          />
        </Group>
        {found?.can.includes("upload_adapter") && (
          <Button component={Link} to={`/tenants/${tenant}/upload`}>
            Upload an adapter…
          </Button>
        )}
      </Group>
      <DataTable
        caption="Adapters, by name"
        columns={columns(tenant, traffic)}
        rows={rows}
        rowKey={(adapter) => adapter.name}
        cursor={search.cursor}
        empty={
          filtered ? (
            <Empty title="No adapter is like this" />
          ) : (
            <Empty
              title="There is no adapter yet"
              command={`motet adapters upload ./my-adapter --tenant ${found?.name ?? "TENANT"}`}
            />
          )
        }
      />
      <SharedAdapters tenant={tenant} cursor={search.shared} />
    </>
  );
}

function columns(tenant: string, traffic: Traffic | undefined): Column<Adapter>[] {
  return [
    {
      title: "Name",
      cell: (adapter) => (
        <Anchor component={Link} to={`/tenants/${tenant}/adapters/${adapter.name}`}>
          {adapter.name}
        </Anchor>
      ),
    },
    { title: "Newest version", cell: (adapter) => <Newest adapter={adapter} /> },
    { title: "Live", cell: (adapter) => <Live adapter={adapter} /> },
    { title: "Requests, 24 h", end: true, cell: (adapter) => <Requests of={adapter.name} in={traffic} /> },
    { title: "Size", end: true, cell: (adapter) => <Bytes value={adapter.bytes} /> },
    { title: "Lies in", cell: (adapter) => <TierMark tier={adapter.tier} home={false} /> },
  ];
}

function Newest({ adapter }: { adapter: Adapter }) {
  return (
    <Group gap="xs" wrap="nowrap">
      <Mono>{`@${adapter.latest}`}</Mono>
      <VersionState state={adapter.state} />
    </Group>
  );
}

function Live({ adapter }: { adapter: Adapter }) {
  const live = adapter.aliases.live;
  if (live === undefined) {
    return (
      <Text span size="sm" c="dimmed">
        none
      </Text>
    );
  }
  return <Mono>{`@${live}`}</Mono>;
}

function Requests({ of, in: traffic }: { of: string; in: Traffic | undefined }) {
  if (traffic === undefined) {
    return <span title="not known">–</span>;
  }
  const found = traffic.data.find((series) => series.key === of);
  if (found === undefined && traffic.data.some((series) => series.key === OTHERS)) {
    return <span title="Not among the busiest, of which each is counted">few</span>;
  }
  return <span className="figures">{countText(found?.total.requests ?? 0)}</span>;
}
