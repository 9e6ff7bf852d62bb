import { Anchor, Badge, Button, Card, Code, Modal, Table, Text, Title } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { failureOf } from "../api/failure";
import { Count, Moment, Mono } from "../parts/figures";
import { useOnce } from "../parts/once";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { Row } from "./tenant-overview";

type Delivery = Schemas["DeliveryOut"];
const LOOK_MS = 5_000; // while the page is seen
const STATES = { waiting: "yellow", delivered: "teal", failed: "red" } as const;

/** The log of 30 days: what was sent, and what came of it. */
export function Deliveries({ tenant, hook }: { tenant: string; hook: Schemas["EndpointOut"] }) {
  const { cursor, delivery } = useSearch({ from: "/inside/tenants/$tenant/webhooks/$webhook" });
  const navigate = useNavigate({ from: "/tenants/$tenant/webhooks/$webhook" });
  const show = (id: string | undefined) =>
    void navigate({ search: (before) => ({ ...before, delivery: id }), resetScroll: false });
  const query = { limit: 25, cursor: cursor ?? null };
  const rows = useQuery({
    queryKey: ["tenant", tenant, "webhook", hook.id, "deliveries", query],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/webhooks/{endpoint_id}/deliveries", {
          params: { path: { tenant, endpoint_id: hook.id }, query },
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: LOOK_MS,
  });
  const open = rows.data?.data.find((one) => one.id === delivery);
  const columns: Column<Delivery>[] = [
    {
      title: "Event",
      cell: (one) => (
        <Anchor component="button" type="button" onClick={() => show(one.id)}>
          {one.kind}
        </Anchor>
      ),
    },
    { title: "State", cell: (one) => <Badge color={STATES[one.state]}>{one.state}</Badge> },
    { title: "Tries", end: true, cell: (one) => <Count value={one.attempts} /> },
    { title: "Last answer", cell: (one) => <Text size="sm">{answerOf(one)}</Text> },
    { title: "Next try", cell: (one) => <Moment at={one.next_at} absent="none" /> },
    { title: "Happened", cell: (one) => <Moment at={one.created_at} /> },
    { title: "Actions", end: true, cell: (one) => <Redeliver tenant={tenant} hook={hook.id} one={one} /> },
  ];
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        What was sent
      </Title>
      <DataTable
        caption="Deliveries, newest first"
        columns={columns}
        rows={rows}
        rowKey={(one) => one.id}
        cursor={cursor}
        empty={
          <Empty title="Nothing was sent yet">
            <Text size="sm">A ping tries it.</Text>
          </Empty>
        }
      />
      {open !== undefined && <OneDelivery one={open} onClose={() => show(undefined)} />}
    </Card>
  );
}

function answerOf(one: Delivery): string {
  if (one.last_status !== null) {
    return `${one.last_status} in ${one.last_ms ?? "?"}\u00a0ms`;
  }
  return one.last_error ?? "none yet";
}

function Redeliver({ tenant, hook, one }: { tenant: string; hook: string; one: Delivery }) {
  const client = useQueryClient();
  const once = useOnce();
  if (!one.can.includes("redeliver")) {
    return null;
  }
  const send = async () => {
    try {
      const path = { tenant, endpoint_id: hook, delivery_id: one.id };
      await heard(
        api.POST("/api/v1/tenants/{tenant}/webhooks/{endpoint_id}/deliveries/{delivery_id}/redeliver", {
          params: { path },
        }),
      );
      await client.invalidateQueries({ queryKey: ["tenant", tenant, "webhook", hook, "deliveries"] });
    } catch (error) {
      notifications.show({ color: "red", message: failureOf(error).message });
    }
  };
  return (
    <Button size="xs" variant="default" onClick={() => void once(send)} aria-label={`Send ${one.kind} again`}>
      Send again
    </Button>
  );
}

function OneDelivery({ one, onClose }: { one: Delivery; onClose: () => void }) {
  return (
    <Modal opened onClose={onClose} title={one.kind} size="lg">
      <Table variant="vertical" layout="auto">
        <Table.Tbody>
          <Row name="webhook-id">
            <Mono>{one.event_id}</Mono>
          </Row>
          <Row name="Happened">
            <Moment at={one.created_at} />
          </Row>
          <Row name="Ended">
            <Moment at={one.finished_at} absent="not yet" />
          </Row>
          <Row name="Last answer">{answerOf(one)}</Row>
        </Table.Tbody>
      </Table>
      <Code block mt="md" className="command" tabIndex={0}>
        {JSON.stringify(one.data, null, 2)}
      </Code>
    </Modal>
  );
}
