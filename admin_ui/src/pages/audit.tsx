import { Anchor, Button, Code, Group, Modal, Stack, Table, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Moment, Mono } from "../parts/figures";
import { DayField, TextFilter } from "../parts/filters";
import { Page } from "../parts/page";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { prefix } from "../place";
import type { AuditSearch } from "../routes/platform";
import { useSession } from "../session/hooks";
import { useTenant, useTenantId } from "./tenant-data";
import { Row } from "./tenant-overview";

type Event = Schemas["EventOut"];

export function AuditPage() {
  const session = useSession();
  const search = useSearch({ from: "/inside/audit" });
  const query = queryOf(search);
  const rows = useQuery({
    queryKey: ["audit", query],
    queryFn: () => heard(api.GET("/api/v1/audit", { params: { query } })),
    placeholderData: keepPreviousData,
  });
  return (
    <Page
      title="Audit"
      calls={[
        { method: "GET", path: "/api/v1/audit?action=api_key." },
        { method: "GET", path: "/api/v1/audit/export" },
      ]}
      actions={session.can.includes("export_audit") && <Export path="/api/v1/audit/export" />}
    >
      <Events search={search} rows={rows} />
    </Page>
  );
}

export function TenantAudit() {
  const id = useTenantId();
  const tenant = useTenant();
  const search = useSearch({ from: "/inside/tenants/$tenant/audit" });
  const query = queryOf(search);
  const rows = useQuery({
    queryKey: ["tenant", id, "audit", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/audit", { params: { path: { tenant: id }, query } })),
    placeholderData: keepPreviousData,
  });
  return (
    <Stack>
      {tenant.data?.can.includes("export_audit") && (
        <Group justify="flex-end">
          <Export path={`/api/v1/tenants/${id}/audit/export`} />
        </Group>
      )}
      <Events search={search} rows={rows} />
    </Stack>
  );
}

function queryOf(search: AuditSearch) {
  return {
    limit: 50,
    cursor: search.cursor ?? null,
    actor: search.actor ?? null,
    action: search.action ?? null,
    target: search.target ?? null,
    since: search.since ?? null,
    until: search.until ?? null,
  };
}

/** A file of the hash chain, as the server writes it. */
function Export({ path }: { path: string }) {
  return (
    <Button component="a" href={prefix + path} download variant="default">
      Export all
    </Button>
  );
}

type Rows = Parameters<typeof DataTable<Event>>[0]["rows"];

function Events({ search, rows }: { search: AuditSearch; rows: Rows }) {
  const navigate = useNavigate();
  const open = rows.data?.data.find((event) => event.id === search.event);
  const go = (next: Partial<AuditSearch>, replace: boolean) =>
    void navigate({
      to: ".",
      search: (before: AuditSearch) => ({ ...before, ...next }),
      replace,
      resetScroll: false,
    } as never);
  const filter = (next: Partial<AuditSearch>) => go({ ...next, cursor: undefined, event: undefined }, true);
  const columns: Column<Event>[] = [
    { title: "When", cell: (event) => <Moment at={event.created_at} /> },
    { title: "Who", cell: (event) => <Mono>{event.actor}</Mono> },
    {
      title: "Did",
      cell: (event) => (
        <Anchor component="button" type="button" onClick={() => go({ event: event.id }, false)}>
          {event.action}
        </Anchor>
      ),
    },
    { title: "To", cell: (event) => <Mono>{event.target}</Mono> },
  ];
  return (
    <>
      <Group align="end" gap="sm">
        <TextFilter
          label="Who"
          placeholder="admin:a@example.com"
          value={search.actor}
          onChange={(actor) => filter({ actor })}
        />
        <TextFilter
          label="What it begins with"
          placeholder="api_key."
          value={search.action}
          onChange={(action) => filter({ action })}
        />
        <TextFilter label="To what" value={search.target} onChange={(target) => filter({ target })} />
        <DayField
          label="From the day"
          value={dayOf(search.since, 0)}
          onChange={(day) => filter({ since: startOf(day, 0) })}
        />
        <DayField
          label="To the day"
          value={dayOf(search.until, 1)}
          onChange={(day) => filter({ until: startOf(day, 1) })}
        />
      </Group>
      <DataTable
        caption="What was changed, newest first"
        columns={columns}
        rows={rows}
        rowKey={(event) => event.id}
        cursor={search.cursor}
        empty={<Empty title="Nothing like this was changed" />}
      />
      {open !== undefined && <OneEvent event={open} onClose={() => go({ event: undefined }, true)} />}
    </>
  );
}

/** Where a day of the viewer's zone begins, or ends where the next begins (`later` 1): a list until a day has that
 * day's events, and the API's `until` is exclusive. */
function startOf(day: string | undefined, later: 0 | 1): string | undefined {
  if (day === undefined) {
    return undefined;
  }
  const [year = 0, month = 1, date = 1] = day.split("-").map(Number);
  return new Date(year, month - 1, date + later).toISOString();
}

/** The day that the field shows for it. */
function dayOf(at: string | undefined, later: 0 | 1): string | undefined {
  return at === undefined ? undefined : new Date(Date.parse(at) - later).toLocaleDateString("sv");
}

function OneEvent({ event, onClose }: { event: Event; onClose: () => void }) {
  return (
    <Modal opened onClose={onClose} title={event.action} size="lg">
      <Table variant="vertical" layout="auto">
        <Table.Tbody>
          <Row name="When">
            <Moment at={event.created_at} />
          </Row>
          <Row name="Who">
            <Mono>{event.actor}</Mono>
          </Row>
          <Row name="To">
            <Mono>{event.target}</Mono>
          </Row>
          <Row name="Tenant">
            {event.tenant === null ? <Text size="sm">none</Text> : <Mono>{event.tenant}</Mono>}
          </Row>
          <Row name="Request">
            {event.request_id === null ? <Text size="sm">none</Text> : <Mono>{event.request_id}</Mono>}
          </Row>
        </Table.Tbody>
      </Table>
      <Code block mt="md" className="command" tabIndex={0}>
        {JSON.stringify(event.details, null, 2)}
      </Code>
    </Modal>
  );
}
