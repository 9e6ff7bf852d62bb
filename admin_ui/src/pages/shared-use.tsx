import { Card, Stack, Table, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, heard, type Schemas } from "../api/client";
import { Count, countText, Mono } from "../parts/figures";
import { Scrolls } from "../parts/scrolls";
import { Empty, Read } from "../parts/states";
import { WindowLine, WindowPicker, type WindowSearch, windowQuery } from "../parts/window";
import { useTenant, useTenantId } from "./tenant-data";

type Report = Schemas["SharedUseReport"];
type Use = Report["data"][number];

const MOST = 500;

/** Who used this tenant's adapters, and how much; who pays is who used them. */
export function SharedUse({
  search,
  onWindow,
}: {
  search: WindowSearch;
  onWindow: (next: WindowSearch) => void;
}) {
  const id = useTenantId();
  const tenant = useTenant();
  const query = windowQuery(search);
  const read = useQuery({
    queryKey: ["tenant", id, "usage", "shared", query],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/usage/shared-adapters", {
          params: { path: { tenant: id }, query },
        }),
      ),
    placeholderData: keepPreviousData,
  });
  return (
    <>
      <WindowPicker
        search={search}
        zone={tenant.data?.reporting_zone ?? "UTC"}
        shown={read.data}
        onChange={onWindow}
      />
      <Read of={read} what="the shared use">
        {(found) =>
          found.data.length === 0 ? (
            <Empty
              title="Nobody else used its adapters in these days"
              command={`motet adapters share ADAPTER --tenant ${tenant.data?.name ?? "TENANT"} --with OTHER`}
            />
          ) : (
            <Stack className={read.isPlaceholderData ? "waiting" : ""}>
              <WindowLine of={found}> · paid by those who used them</WindowLine>
              <Uses of={found} />
            </Stack>
          )
        }
      </Read>
    </>
  );
}

function Uses({ of }: { of: Report }) {
  const shown = of.data.slice(0, MOST);
  return (
    <Card withBorder>
      <Scrolls minWidth={620} what="What other tenants used, by day, tenant and adapter">
        <Table verticalSpacing="xs" highlightOnHover>
          <caption className="off-screen">What other tenants used, by day, tenant and adapter</caption>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">Day ({of.zone})</Table.Th>
              <Table.Th scope="col">Tenant</Table.Th>
              <Table.Th scope="col">Adapter</Table.Th>
              {["Requests", "Input tokens", "of them cached", "Output tokens"].map((title) => (
                <Table.Th key={title} scope="col" ta="end">
                  {title}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {shown.map((use) => (
              <Table.Tr key={`${use.day} ${use.tenant}/${use.adapter}`}>
                <Table.Td className="figures">{use.day}</Table.Td>
                <Table.Td>{use.tenant}</Table.Td>
                <Table.Td>
                  <Mono>{use.adapter}</Mono>
                </Table.Td>
                <Cells of={use} />
              </Table.Tr>
            ))}
          </Table.Tbody>
          <Table.Tfoot>
            <Table.Tr>
              <Table.Th scope="row" colSpan={3}>
                Total
              </Table.Th>
              <Cells of={of} />
            </Table.Tr>
          </Table.Tfoot>
        </Table>
      </Scrolls>
      {of.data.length > MOST && (
        <Text size="sm" c="dimmed">
          {countText(of.data.length - MOST)} more rows are in the total and not shown: look at fewer days.
        </Text>
      )}
    </Card>
  );
}

function Cells({
  of,
}: {
  of: Pick<Use, "requests" | "prompt_tokens" | "cached_tokens" | "completion_tokens">;
}) {
  return (
    <>
      <Table.Td ta="end">
        <Count value={of.requests} />
      </Table.Td>
      <Table.Td ta="end">
        <Count value={of.prompt_tokens} />
      </Table.Td>
      <Table.Td ta="end">
        <Count value={of.cached_tokens} />
      </Table.Td>
      <Table.Td ta="end">
        <Count value={of.completion_tokens} />
      </Table.Td>
    </>
  );
}
