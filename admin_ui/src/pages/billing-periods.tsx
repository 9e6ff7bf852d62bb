import { Group, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Count, countText, Moment } from "../parts/figures";
import { exactText } from "../parts/money";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { PeriodState } from "./statement";

type Period = Schemas["PlatformPeriodOut"];

const LOOK_MS = 15_000;
const WHY: Record<NonNullable<Period["blocked"]>, string> = {
  incomplete: "usage of it may still be on its way",
  stale: "some usage up to its end is not charged yet",
  uncounted: "nobody knows the tokens of some requests yet; settled within a day",
  unpriced: "some usage up to its end has no price",
  different: "charges and ledger disagree: a fault",
};

const COLUMNS: Column<Period>[] = [
  {
    title: "Month (UTC)",
    cell: (period) => (
      <Link to="/billing/months/$month" params={{ month: period.month }}>
        {period.month}
      </Link>
    ),
  },
  {
    title: "State",
    cell: (period) => (
      <Group gap={4}>
        <PeriodState state={period.status} />
        {period.status === "ended" && (
          <Text size="xs">{period.blocked === null ? "is about to be closed" : WHY[period.blocked]}</Text>
        )}
      </Group>
    ),
  },
  {
    title: "Complete until",
    cell: (period) => <Moment at={period.complete_until} absent="nobody knows" />,
  },
  { title: "Closed", cell: (period) => <Moment at={period.closed_at} absent="–" /> },
  { title: "Tenants billed", end: true, cell: (period) => <Count value={period.tenants} /> },
  {
    title: "Statements come to",
    end: true,
    cell: (period) => (
      <span className="figures" title={`${exactText(period.exact, period.currency)} before rounding`}>
        {period.tenants === 0 ? "–" : exactText(period.total, period.currency)}
      </span>
    ),
  },
  {
    title: "Up to its end, in no sum",
    cell: (period) => <NotInIt period={period} />,
  },
];

export function BillingPeriods() {
  const { cursor } = useSearch({ from: "/inside/billing/" });
  const rows = useQuery({
    queryKey: ["billing", "periods", cursor],
    queryFn: () =>
      heard(api.GET("/api/v1/billing/periods", { params: { query: { limit: 12, cursor: cursor ?? null } } })),
    placeholderData: keepPreviousData,
    refetchInterval: LOOK_MS,
  });
  return (
    <DataTable
      caption="Months of all tenants, newest first"
      columns={COLUMNS}
      rows={rows}
      rowKey={(period) => period.month}
      cursor={cursor}
      empty={<Empty title="Nothing was used yet" command="motet billing periods --all" />}
    />
  );
}

function NotInIt({ period }: { period: Period }) {
  const parts = [
    counted(
      period.waiting_buckets,
      "quarter of an hour that is being charged",
      "quarters that are being charged",
    ),
    counted(period.unknown_requests, "request that nobody could count", "requests that nobody could count"),
    counted(
      period.unpriced_buckets,
      "quarter of an hour without a price",
      "quarters of an hour without a price",
    ),
  ].filter((part) => part !== "");
  return <Text size="sm">{parts.length === 0 ? "–" : parts.join(", ")}</Text>;
}

function counted(count: number, one: string, more: string): string {
  return count === 0 ? "" : `${countText(count)} ${count === 1 ? one : more}`;
}
