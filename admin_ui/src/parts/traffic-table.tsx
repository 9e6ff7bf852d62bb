import { Anchor, Table, Text } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import type { Schemas } from "../api/client";
import { Duration } from "./duration";
import { Count } from "./figures";
import { Empty } from "./states";
import { answered, type Metrics, OTHERS } from "./traffic-steps";

type Series = Schemas["Series"];

/** The largest by requests; all others are one line, and all lines together are all requests. `tenant`: whose
 * page it stands on. */
export function TrafficTable({ of, tenant }: { of: Metrics; tenant?: string }) {
  if (of.data.length === 0) {
    return <Empty title="There was no request in this time" />;
  }
  const what = of.by === "tenant" ? "Tenant" : "Adapter";
  return (
    <Table.ScrollContainer minWidth={820}>
      <Table highlightOnHover verticalSpacing="xs">
        <caption className="off-screen">Requests by {what.toLowerCase()}, the largest first</caption>
        <Table.Thead>
          <Table.Tr>
            <Table.Th scope="col">{what}</Table.Th>
            {[
              "Requests",
              "Refused",
              "Failed",
              "Input tokens",
              "Output tokens",
              "First token p95",
              "Between tokens p50",
              "Queue p95",
              "All of it p95",
            ].map((title) => (
              <Table.Th key={title} scope="col" ta="end">
                {title}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {of.data.map((series) => (
            <Table.Tr key={`${series.tenant} ${series.key}`}>
              <Table.Th scope="row" fw={400}>
                <Name series={series} of={of} page={tenant} />
              </Table.Th>
              <Table.Td ta="end">
                <Count value={series.total.requests} />
              </Table.Td>
              <Table.Td ta="end">
                <Count value={refused(series)} />
              </Table.Td>
              <Table.Td ta="end">
                <Count value={series.total.failed} />
              </Table.Td>
              <Table.Td ta="end">
                <Count value={series.total.prompt_tokens} />
              </Table.Td>
              <Table.Td ta="end">
                <Count value={series.total.completion_tokens} />
              </Table.Td>
              {(
                [
                  ["ttft", series.total.ttft_ms.p95],
                  ["between", series.total.inter_token_ms.p50],
                  ["queue", series.total.queue_ms.p95],
                  ["total", series.total.total_ms.p95],
                ] as const
              ).map(([name, ms]) => (
                <Table.Td key={name} ta="end">
                  {ms === null ? "–" : <Duration ms={ms} />}
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

const refused = ({ total }: Series) => total.requests - answered(total) - total.failed - total.client_left;

function Name({ series, of, page }: { series: Series; of: Metrics; page: string | undefined }) {
  const tenant = series.tenant ?? page;
  if (series.key === OTHERS || tenant === undefined) {
    return <Text size="sm">{series.key === OTHERS ? "all others" : series.key}</Text>;
  }
  if (of.by === "tenant") {
    return (
      <Anchor component={Link} to={`/tenants/${tenant}`}>
        {series.tenant_name ?? series.key}
      </Anchor>
    );
  }
  const owner = page === undefined ? `${series.tenant_name ?? tenant} · ` : "";
  if (series.key.startsWith("(")) {
    return (
      <Text size="sm">
        {owner}
        {series.key === "(base)" ? "the base" : "refused before the model was known"}
      </Text>
    );
  }
  const adapter = series.key.split("/").at(-1);
  return (
    <Anchor
      component={Link}
      to={`/tenants/${tenant}/requests`}
      search={{ adapter, since: of.start, until: of.end } as never}
    >
      {owner}
      {series.key}
    </Anchor>
  );
}
