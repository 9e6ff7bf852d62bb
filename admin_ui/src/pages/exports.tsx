import { Badge, Button, Card, Group, Modal, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { CopyButton } from "../parts/copy";
import { bytesText, Count, Moment, Mono } from "../parts/figures";
import { Money } from "../parts/money";
import { useOnce } from "../parts/once";
import { Scrolls } from "../parts/scrolls";
import { Empty, Failed } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { prefix } from "../place";
import { useSession } from "../session/hooks";
import { PeriodState } from "./statement";
import { useTenant, useTenantId } from "./tenant-data";

type Export = Schemas["ExportOut"];

const LOOK_MS = 2_000; // while one is waited for
const COLORS = { waiting: "blue", done: "teal", failed: "red", superseded: "gray" } as const;
const KINDS = { csv: "CSV", parquet: "Parquet", manifest: "Manifest" } as const;

export function ExportsOfTenant({
  month,
  cursor,
}: {
  month: string | undefined;
  cursor: string | undefined;
}) {
  const id = useTenantId();
  const tenant = useTenant();
  const path = { tenant: id };
  const rows = useExports(["tenant", id, "billing", "exports", cursor], () =>
    heard(
      api.GET("/api/v1/tenants/{tenant}/billing/exports", {
        params: { path, query: { limit: 20, cursor: cursor ?? null } },
      }),
    ),
  );
  return (
    <Exports
      rows={rows}
      cursor={cursor}
      root={`/api/v1/tenants/${id}/billing/exports`}
      command={`motet usage export --tenant ${tenant.data?.name ?? "TENANT"}`}
      month={month}
      may={tenant.data?.can.includes("create_export") ?? false}
      ask={(of) =>
        heard(api.POST("/api/v1/tenants/{tenant}/billing/exports", { params: { path }, body: { month: of } }))
      }
    />
  );
}

export function ExportsOfAll() {
  const session = useSession();
  const { cursor } = useSearch({ from: "/inside/billing/exports" });
  const rows = useExports(["billing", "exports", cursor], () =>
    heard(api.GET("/api/v1/billing/exports", { params: { query: { limit: 20, cursor: cursor ?? null } } })),
  );
  return (
    <Exports
      rows={rows}
      cursor={cursor}
      root="/api/v1/billing/exports"
      command="motet usage export --all"
      month={undefined}
      may={session.can.includes("create_billing_export")}
      ask={(of) => heard(api.POST("/api/v1/billing/exports", { body: { month: of } }))}
    />
  );
}

function useExports(queryKey: unknown[], queryFn: () => Promise<Schemas["ExportPage"]>) {
  return useQuery({
    queryKey,
    queryFn,
    placeholderData: keepPreviousData,
    refetchInterval: (query) =>
      query.state.data?.data.some((each) => each.state === "waiting") ? LOOK_MS : false,
  });
}

interface Props {
  rows: ReturnType<typeof useExports>;
  cursor: string | undefined;
  root: string;
  command: string;
  month: string | undefined;
  may: boolean;
  ask: (month: string) => Promise<Export>;
}

function Exports({ rows, cursor, root, command, month, may, ask }: Props) {
  const [shown, setShown] = useState<Export | null>(null);
  const columns: Column<Export>[] = [
    { title: "Month (UTC)", cell: (each) => <Text size="sm">{each.month}</Text> },
    { title: "Period", cell: (each) => <PeriodState state={each.period} /> },
    { title: "State", cell: (each) => <State of={each} /> },
    { title: "Rows", end: true, cell: (each) => <Rows of={each} /> },
    {
      title: "Sum",
      end: true,
      cell: (each) =>
        Object.entries(each.billed).map(([currency, amount]) => (
          <div key={currency}>
            <Money amount={amount} currency={currency} />
          </div>
        )),
    },
    { title: "Files", cell: (each) => <Files of={each} root={root} onMore={() => setShown(each)} /> },
    { title: "Asked for", cell: (each) => <Moment at={each.created_at} /> },
  ];
  return (
    <Card withBorder>
      <Group justify="space-between" align="end" mb="sm">
        <Title order={2} size="h4">
          Exports
        </Title>
        {may && <Ask key={month} month={month} ask={ask} onDone={() => void rows.refetch()} />}
      </Group>
      <DataTable
        caption="Exports, newest first"
        columns={columns}
        rows={rows}
        rowKey={(each) => each.id}
        cursor={cursor}
        empty={
          <Empty title="No export was asked for yet" command={command}>
            <Text size="sm">
              The charges of a month, hour by hour, as CSV and Parquet with the columns of FOCUS.
            </Text>
          </Empty>
        }
      />
      {shown !== null && <Checksums of={shown} onClose={() => setShown(null)} />}
    </Card>
  );
}

function Ask({ month, ask, onDone }: { month: string | undefined; ask: Props["ask"]; onDone: () => void }) {
  const client = useQueryClient();
  const once = useOnce();
  const [wanted, setWanted] = useState(month ?? new Date().toISOString().slice(0, 7));
  const asked = useMutation({
    mutationFn: ask,
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["billing", "exports"] });
      onDone();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(() => asked.mutateAsync(wanted).catch(() => {})); // what it failed for is shown
  };
  return (
    <form onSubmit={submit}>
      <Group align="end" gap="sm">
        <TextInput
          type="month"
          label="Month (UTC)"
          required
          withAsterisk={false}
          value={wanted}
          onChange={(event) => setWanted(event.currentTarget.value)}
        />
        <Button type="submit" loading={asked.isPending}>
          Create export
        </Button>
      </Group>
      {asked.error !== null && <Failed error={asked.error} />}
    </form>
  );
}

function State({ of }: { of: Export }) {
  return (
    <>
      <Badge color={COLORS[of.state]}>{of.state}</Badge>
      {of.failure !== null && <Mono>{of.failure}</Mono>}
      {of.reason !== null && <Text size="xs">{of.reason}</Text>}
    </>
  );
}

function Rows({ of }: { of: Export }) {
  const [file] = of.files;
  return file === undefined ? (
    <Text span c="dimmed" size="sm">
      {of.state === "waiting" ? "being made" : "–"}
    </Text>
  ) : (
    <Count value={file.rows} />
  );
}

function Files({ of, root, onMore }: { of: Export; root: string; onMore: () => void }) {
  if (!of.can.includes("download")) {
    return null;
  }
  const size = (kind: string) => of.files.find((file) => file.kind === kind)?.bytes;
  return (
    <Group gap="sm" wrap="nowrap">
      {(["csv", "parquet", "manifest"] as const).map((kind) => (
        <a key={kind} href={`${prefix}${root}/${of.id}/file?kind=${kind}`} download className="figures">
          {KINDS[kind]}
          {size(kind) !== undefined && ` (${bytesText(size(kind) ?? 0)})`}
        </a>
      ))}
      <Button size="compact-xs" variant="default" onClick={onMore}>
        Checksums…
      </Button>
    </Group>
  );
}

function Checksums({ of, onClose }: { of: Export; onClose: () => void }) {
  return (
    <Modal opened onClose={onClose} title={`Export of ${of.month}`} size="lg">
      <Stack>
        <Text size="sm">
          Asked for by {of.requested_by}. Complete until{" "}
          <Moment at={of.complete_until} absent="nobody knows when" />. Asked for again before anything
          changed, it is the same file, byte for byte.
        </Text>
        <Scrolls minWidth={480} what="Files of the export">
          <Table>
            <caption className="off-screen">Files of the export</caption>
            <Table.Thead>
              <Table.Tr>
                <Table.Th scope="col">File</Table.Th>
                <Table.Th scope="col" ta="end">
                  Size
                </Table.Th>
                <Table.Th scope="col">SHA-256</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {of.files.map((file) => (
                <Table.Tr key={file.name}>
                  <Table.Td>{file.name}</Table.Td>
                  <Table.Td ta="end">
                    <Count value={file.bytes} unit="B" />
                  </Table.Td>
                  <Table.Td>
                    <Mono>{file.sha256}</Mono>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Scrolls>
        <Group>
          <CopyButton
            text={of.files.map((file) => `${file.sha256}  ${file.name}`).join("\n")}
            label="Copy for sha256sum"
          />
        </Group>
      </Stack>
    </Modal>
  );
}
