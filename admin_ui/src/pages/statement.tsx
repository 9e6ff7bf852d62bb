import { Alert, Badge, Card, Group, Stack, Table, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { api, heard, type Schemas } from "../api/client";
import { Count, countText, Moment, Mono } from "../parts/figures";
import { alignedTexts, exactText } from "../parts/money";
import { Scrolls } from "../parts/scrolls";
import { Empty, Read } from "../parts/states";
import { WindowLine } from "../parts/window";
import { ExportsOfTenant } from "./exports";
import { useTenantId } from "./tenant-data";

type Statement = Schemas["StatementOut"];
type Line = Statement["lines"][number];

const PERIODS = 24;

export function TenantBilling() {
  const id = useTenantId();
  const search = useSearch({ from: "/inside/tenants/$tenant/billing" });
  const path = { tenant: id };
  const periods = useQuery({
    queryKey: ["tenant", id, "billing", "periods"],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/billing/periods", { params: { path, query: { limit: PERIODS } } }),
      ),
  });
  const statement = useQuery({
    queryKey: ["tenant", id, "billing", "statement", search.month],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/billing/statement", {
          params: { path, query: { month: search.month ?? null } },
        }),
      ),
    placeholderData: keepPreviousData,
  });
  return (
    <Stack>
      <Card withBorder>
        <Title order={2} size="h4" mb="xs">
          Months
        </Title>
        <Read of={periods} what="the months">
          {(found) => <Months of={found} shown={statement.data?.month} />}
        </Read>
      </Card>
      <Read of={statement} what="the statement">
        {(found) => (
          <Card withBorder className={statement.isPlaceholderData ? "waiting" : ""}>
            <StatementCard of={found} />
          </Card>
        )}
      </Read>
      <ExportsOfTenant month={statement.data?.month} cursor={search.cursor} />
    </Stack>
  );
}

function Months({ of, shown }: { of: Schemas["PeriodList"]; shown: string | undefined }) {
  const id = useTenantId();
  if (of.data.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        Nothing was charged yet. Usage is charged within a minute, as soon as there is a price book.
      </Text>
    );
  }
  return (
    <>
      <Table.ScrollContainer minWidth={480}>
        <Table verticalSpacing="xs">
          <caption className="off-screen">Months with charges, newest first</caption>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">Month (UTC)</Table.Th>
              <Table.Th scope="col">State</Table.Th>
              <Table.Th scope="col">Statement</Table.Th>
              <Table.Th scope="col" ta="end">
                Total
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {of.data.map((period) => (
              <Table.Tr key={period.month}>
                <Table.Td>
                  <Link
                    to="/tenants/$tenant/billing"
                    params={{ tenant: id }}
                    search={{ month: period.month }}
                    aria-current={period.month === shown ? "true" : undefined}
                  >
                    {period.month}
                  </Link>
                </Table.Td>
                <Table.Td>
                  <PeriodState state={period.status} />
                </Table.Td>
                <Table.Td>{period.statement === null ? "–" : <Mono>{period.statement}</Mono>}</Table.Td>
                <Table.Td ta="end" className="figures">
                  {exactText(period.total, period.currency)}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      {of.has_more && (
        <Text size="sm" c="dimmed">
          Older months are not shown: `motet billing periods` lists all.
        </Text>
      )}
    </>
  );
}

export function PeriodState({ state }: { state: "open" | "ended" | "closed" }) {
  return <Badge color={{ open: "blue", ended: "orange", closed: "teal" }[state]}>{state}</Badge>;
}

function StatementCard({ of }: { of: Statement }) {
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <Group gap="sm">
          <Title order={2} size="h4">
            {of.status === "closed" ? "Statement" : "Preview"} of {of.month}
          </Title>
          <PeriodState state={of.status} />
        </Group>
        {of.id !== null && <Mono>{of.id}</Mono>}
      </Group>
      <WindowLine of={of}>
        {of.issued_at !== null && (
          <>
            {" "}
            · issued <Moment at={of.issued_at} />
          </>
        )}
      </WindowLine>
      <NotInIt of={of} />
      {of.lines.length === 0 ? <Empty title={`Nothing was charged in ${of.month}`} /> : <Lines of={of} />}
    </Stack>
  );
}

function NotInIt({ of }: { of: Statement }) {
  return (
    <>
      {of.unknown_requests > 0 && (
        <Alert color="yellow" role="status" p="xs">
          {countText(of.unknown_requests)} requests are not in it: nobody could count their tokens yet.
        </Alert>
      )}
      {of.has_unpriced && (
        <Alert color="yellow" role="status" p="xs">
          Some usage is not in it: no price covers it yet.
        </Alert>
      )}
    </>
  );
}

/** Exact amounts, so that who adds them up comes to the total. */
function Lines({ of }: { of: Statement }) {
  const amounts = alignedTexts([...of.lines.map((line) => line.amount), of.exact, of.rounding]);
  const [exact, rounding] = amounts.slice(-2);
  return (
    <Scrolls minWidth={760} what={`Lines of ${of.month}`}>
      <Table verticalSpacing="xs">
        <caption className="off-screen">Lines of {of.month}</caption>
        <Table.Thead>
          <Table.Tr>
            <Table.Th scope="col">Model</Table.Th>
            <Table.Th scope="col">Service class</Table.Th>
            <Table.Th scope="col">Meter</Table.Th>
            <Table.Th scope="col" ta="end">
              Tokens
            </Table.Th>
            <Table.Th scope="col" ta="end">
              Per million
            </Table.Th>
            <Table.Th scope="col" ta="end">
              Amount
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {of.lines.map((line, place) => (
            <LineRow key={keyOf(line)} line={line} amount={amounts[place] ?? line.amount} />
          ))}
        </Table.Tbody>
        <Table.Tfoot>
          <Foot name="Sum, exact">{exact}</Foot>
          <Foot name={`Rounding, once, to what ${of.currency ?? "the currency"} has`}>{rounding}</Foot>
          <Foot name={of.status === "closed" ? "Total" : "Total so far"}>
            {exactText(of.total, of.currency)}
          </Foot>
        </Table.Tfoot>
      </Table>
    </Scrolls>
  );
}

function LineRow({ line, amount }: { line: Line; amount: string }) {
  return (
    <Table.Tr>
      <Table.Td>
        {line.adapter === null ? "The base itself" : <Mono>{line.adapter}</Mono>}
        {line.correction && (
          <Badge color="orange" ml="xs">
            corrects {line.used_month}
          </Badge>
        )}
      </Table.Td>
      <Table.Td>{line.service_class}</Table.Td>
      <Table.Td>{line.meter}</Table.Td>
      <Table.Td ta="end">
        <Count value={line.tokens} />
      </Table.Td>
      <Table.Td ta="end" className="figures" title={`Price book version ${line.price_book_version}`}>
        {line.unit_price}
      </Table.Td>
      <Table.Td ta="end" className="figures">
        {amount}
      </Table.Td>
    </Table.Tr>
  );
}

function Foot({ name, children }: { name: string; children: ReactNode }) {
  return (
    <Table.Tr>
      <Table.Th scope="row" colSpan={5}>
        {name}
      </Table.Th>
      <Table.Td ta="end" className="figures">
        {children}
      </Table.Td>
    </Table.Tr>
  );
}

function keyOf(line: Line): string {
  return [
    line.used_month,
    line.owner,
    line.adapter,
    line.base_id,
    line.service_class,
    line.meter,
    line.price,
  ].join(" ");
}
