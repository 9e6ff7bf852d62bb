import { Group, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Count, Moment } from "../parts/figures";
import { exactText } from "../parts/money";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { PeriodState } from "./statement";

type Period = Schemas["PlatformPeriodOut"];

const LOOK_MS = 15_000;
const WHY: Record<NonNullable<Period["blocked"]>, string> = {
  incomplete: "usage of it may still be on its way",
  stale: "some of it is not charged yet",
  uncounted: "nobody knows the tokens of some requests yet; settled within a day",
  unpriced: "some of it is from before the first price book version",
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
    title: "Not in it",
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
    [period.waiting_buckets, "quarters of an hour that are being charged"],
    [period.unknown_requests, "requests that nobody could count"],
    [period.unpriced_buckets, "quarters of an hour without a price"],
  ] as const;
  const some = parts.filter(([count]) => count > 0);
  return (
    <Text size="sm">
      {some.length === 0 ? "–" : some.map(([count, what]) => `${count} ${what}`).join(", ")}
    </Text>
  );
}
