import { Anchor, Badge, Group, Stack, Switch, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { countText, Moment, Mono } from "../parts/figures";
import { exactText } from "../parts/money";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";

type Row = Schemas["PeriodTenantOut"];
type Tokens = Schemas["TokensOut"];

export function BillingMonth() {
  const { month } = useParams({ from: "/inside/billing/months/$month" });
  const search = useSearch({ from: "/inside/billing/months/$month" });
  const navigate = useNavigate({ from: "/billing/months/$month" });
  const query = { limit: 50, cursor: search.cursor ?? null, ledger: search.ledger ?? false };
  const rows = useQuery({
    queryKey: ["billing", "month", month, query],
    queryFn: () =>
      heard(api.GET("/api/v1/billing/periods/{month}/tenants", { params: { path: { month }, query } })),
    placeholderData: keepPreviousData,
  });
  return (
    <Stack>
      <Anchor component={Link} to="/billing" size="sm">
        All months
      </Anchor>
      <Group justify="space-between" align="center">
        <div>
          <Title order={2} size="h4">
            {month}, tenant by tenant
          </Title>
          {rows.data !== undefined && (
            <Text size="sm" c="dimmed">
              UTC · complete until <Moment at={rows.data.complete_until} absent="nobody knows when" />
            </Text>
          )}
        </div>
        <Switch
          label="Count the ledger's rows anew, and compare"
          checked={search.ledger ?? false}
          onChange={(event) => {
            const ledger = event.currentTarget.checked ? (true as const) : undefined;
            void navigate({ search: { ledger }, replace: true, resetScroll: false });
          }}
        />
      </Group>
      <DataTable
        caption={`What each tenant is billed in ${month}`}
        columns={columnsOf(month, search.ledger ?? false)}
        rows={rows}
        rowKey={(row) => row.tenant}
        cursor={search.cursor}
        empty={
          <Empty
            title={`Nothing was used in ${month}`}
            command={`motet billing reconcile --month ${month}`}
          />
        }
      />
    </Stack>
  );
}

function columnsOf(month: string, ledger: boolean): Column<Row>[] {
  const counted: Column<Row> = {
    title: "Tokens in the ledger",
    end: true,
    cell: (row) => (row.ledger === null ? "…" : <TokenText of={row.ledger} />),
  };
  return [
    {
      title: "Tenant",
      cell: (row) => (
        <Link to="/tenants/$tenant/billing" params={{ tenant: row.tenant }} search={{ month }}>
          {row.name}
        </Link>
      ),
    },
    {
      title: "Statement",
      cell: (row) => (row.statement === null ? "not yet" : <Mono>{row.statement}</Mono>),
    },
    {
      title: "Total",
      end: true,
      cell: (row) => (
        <span className="figures" title={`${exactText(row.exact, row.currency)} before rounding`}>
          {row.currency === null ? "–" : exactText(row.total, row.currency)}
        </span>
      ),
    },
    { title: "Tokens used", end: true, cell: (row) => <TokenText of={row.used} /> },
    { title: "Tokens charged", end: true, cell: (row) => <TokenText of={row.charged} /> },
    ...(ledger ? [counted] : []),
    { title: "Reconciled", cell: (row) => <Agreement row={row} /> },
  ];
}

function TokenText({ of }: { of: Tokens }) {
  const detail = `${countText(of.prompt)} in, ${countText(of.cached)} of them cached, ${countText(of.completion)} out`;
  return (
    <span className="figures" title={detail}>
      {countText(of.prompt + of.completion)}
    </span>
  );
}

function Agreement({ row }: { row: Row }) {
  const open = [
    row.unpriced_buckets > 0 ? `${row.unpriced_buckets} quarters of an hour have no price` : "",
    row.unknown_requests > 0 ? `${row.unknown_requests} requests are not counted yet` : "",
  ].filter((each) => each !== "");
  return (
    <>
      <Badge color={row.agrees ? "teal" : "red"}>{row.agrees ? "agrees" : "differs"}</Badge>
      {open.length > 0 && <Text size="xs">{open.join("; ")}</Text>}
    </>
  );
}
