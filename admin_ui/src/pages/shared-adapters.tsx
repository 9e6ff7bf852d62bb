import { Badge, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, heard, type Schemas } from "../api/client";
import { Moment, Mono } from "../parts/figures";
import { type Column, DataTable } from "../parts/table";

type Shared = Schemas["SharedAdapterOut"];

const COLUMNS: Column<Shared>[] = [
  { title: "Model", cell: (shared) => <Mono>{shared.id}</Mono> },
  {
    title: "Answers",
    cell: (shared) => (shared.live ? <Badge color="teal">live</Badge> : <Badge color="gray">not now</Badge>),
  },
  { title: "May follow the @", cell: (shared) => shared.reachable?.join(", ") ?? "all that is ready" },
  { title: "Shared", cell: (shared) => <Moment at={shared.shared_at} /> },
];

/** Other owners' adapters that this tenant may use; nothing where there are none. */
export function SharedAdapters({ tenant, cursor }: { tenant: string; cursor: string | undefined }) {
  const query = { limit: 50, cursor: cursor ?? null };
  const rows = useQuery({
    queryKey: ["tenant", tenant, "shared-adapters", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/shared-adapters", { params: { path: { tenant }, query } })),
    placeholderData: keepPreviousData,
  });
  const none = rows.data === undefined ? rows.error === null : rows.data.data.length === 0;
  if (none && cursor === undefined) {
    return null; // most tenants have none: nothing jumps for them
  }
  return (
    <section aria-labelledby="shared-adapters">
      <Title order={2} size="h4" mt="xl" id="shared-adapters">
        Shared by other owners
      </Title>
      <Text size="sm" c="dimmed" mb="xs">
        Used as owner/name. What they are made of stays their owner's.
      </Text>
      <DataTable
        caption="Adapters shared by other owners"
        columns={COLUMNS}
        rows={rows}
        rowKey={(shared) => shared.id}
        cursor={cursor}
        cursorName="shared"
        plain
        empty={null}
      />
    </section>
  );
}
