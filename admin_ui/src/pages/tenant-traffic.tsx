import { Card, Group, Stack, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { api, heard } from "../api/client";
import { RangePicker } from "../parts/range";
import { type RangeSearch, rangeLookMs, rangeQuery } from "../parts/range-search";
import { Read } from "../parts/states";
import { Traffic } from "../parts/traffic";
import { TrafficTable } from "../parts/traffic-table";
import { useTenantId } from "./tenant-data";

/** A tenant's own requests, and by adapter. */
export function TenantTraffic() {
  const tenant = useTenantId();
  const search = useSearch({ from: "/inside/tenants/$tenant/" });
  const navigate = useNavigate({ from: "/tenants/$tenant/" });
  const range = rangeQuery(search);
  const asked = { refetchInterval: rangeLookMs(search), placeholderData: keepPreviousData };
  const path = { tenant };
  const all = useQuery({
    queryKey: ["tenant", tenant, "metrics", range],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/metrics/requests", { params: { path, query: range } })),
    ...asked,
  });
  const parts = useQuery({
    queryKey: ["tenant", tenant, "metrics", range, "adapter"],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/metrics/requests", {
          params: { path, query: { ...range, by: "adapter", points: false } },
        }),
      ),
    ...asked,
  });
  const choose = (next: RangeSearch) =>
    void navigate({ search: (before) => ({ ...before, ...next }), resetScroll: false });
  return (
    <Stack gap="sm" component="section" aria-label="Its requests">
      <Group justify="space-between">
        <Title order={2} size="h4">
          Requests
        </Title>
        <RangePicker search={search} onChange={choose} />
      </Group>
      <div className={all.isPlaceholderData ? "waiting" : ""} style={{ minHeight: 700 }}>
        <Read of={all} what="the figures">
          {(found) => <Traffic of={found} onRange={choose} />}
        </Read>
      </div>
      <Card withBorder p="sm" className={parts.isPlaceholderData ? "waiting" : ""}>
        <Title order={3} size="h5" mb="xs">
          By adapter
        </Title>
        <Read of={parts} what="the table">
          {(found) => <TrafficTable of={found} tenant={tenant} />}
        </Read>
      </Card>
    </Stack>
  );
}
