import { Group, Stack, Tabs, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { api, heard } from "../api/client";
import { Page } from "../parts/page";
import { RangePicker } from "../parts/range";
import { type RangeSearch, rangeLookMs, rangeQuery, rangeText } from "../parts/range-search";
import { Read } from "../parts/states";
import { Traffic } from "../parts/traffic";
import { TrafficTable } from "../parts/traffic-table";
import { NeedsAttention } from "./attention";
import { FindRequest } from "./request-find";

export function OverviewPage() {
  const search = useSearch({ from: "/inside/overview" });
  const navigate = useNavigate({ from: "/overview" });
  const by = search.by ?? "tenant";
  const range = rangeQuery(search);
  const asked = { refetchInterval: rangeLookMs(search), placeholderData: keepPreviousData };
  const all = useQuery({
    queryKey: ["metrics", "all", range],
    queryFn: () => heard(api.GET("/api/v1/metrics/requests", { params: { query: range } })),
    ...asked,
  });
  const parts = useQuery({
    queryKey: ["metrics", "all", range, by],
    queryFn: () =>
      heard(api.GET("/api/v1/metrics/requests", { params: { query: { ...range, by, points: false } } })),
    ...asked,
  });
  const choose = (next: RangeSearch) =>
    void navigate({ search: (before) => ({ ...before, ...next }), resetScroll: false });
  return (
    <Page
      title="Overview"
      actions={<RangePicker search={search} onChange={choose} />}
      calls={[
        { method: "GET", path: "/api/v1/attention" },
        { method: "GET", path: `/api/v1/metrics/requests?${rangeText(search)}` },
        { method: "GET", path: `/api/v1/metrics/requests?${rangeText(search)}&by=${by}&points=false` },
      ]}
    >
      <NeedsAttention />
      <Stack gap="sm" component="section" aria-label="Requests of all tenants">
        <Group justify="space-between">
          <Title order={2} size="h5">
            Requests of all tenants
          </Title>
          <FindRequest />
        </Group>
        <div className={all.isPlaceholderData ? "waiting" : ""} style={{ minHeight: 700 }}>
          <Read of={all} what="the figures">
            {(found) => <Traffic of={found} onRange={choose} />}
          </Read>
        </div>
      </Stack>
      <Tabs
        value={by}
        onChange={(value) =>
          void navigate({
            search: (before) => ({ ...before, by: value === "adapter" ? "adapter" : undefined }),
            resetScroll: false,
          })
        }
        keepMounted={false}
      >
        <Tabs.List>
          <Tabs.Tab value="tenant">By tenant</Tabs.Tab>
          <Tabs.Tab value="adapter">By adapter</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value={by} pt="sm" className={parts.isPlaceholderData ? "waiting" : ""}>
          <Read of={parts} what="the table">
            {(found) => <TrafficTable of={found} />}
          </Read>
        </Tabs.Panel>
      </Tabs>
    </Page>
  );
}
