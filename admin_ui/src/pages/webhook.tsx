import { Anchor, Button, Card, Group, Select, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas, tagged } from "../api/client";
import { failureOf } from "../api/failure";
import { leavingOf } from "../live/leaving";
import { BusyModal } from "../parts/busy-modal";
import { Confirm } from "../parts/confirm";
import { ConflictNotice, SaveBar, useEdit } from "../parts/edits";
import { Moment } from "../parts/figures";
import { useOnce } from "../parts/once";
import { SecretOnce } from "../parts/secret";
import { Failed, Read } from "../parts/states";
import { HookFields, type HookValues, hookValues } from "../parts/webhook-fields";
import { Row } from "./tenant-overview";
import { Deliveries } from "./webhook-deliveries";
import { HookState } from "./webhooks";

type Endpoint = Schemas["EndpointOut"];

interface Props {
  tenant: string;
  hook: Endpoint;
}

export function WebhookPage() {
  const { tenant, webhook } = useParams({ from: "/inside/tenants/$tenant/webhooks/$webhook" });
  const read = useQuery({
    queryKey: ["tenant", tenant, "webhook", webhook],
    queryFn: () =>
      tagged(
        api.GET("/api/v1/tenants/{tenant}/webhooks/{endpoint_id}", {
          params: { path: { tenant, endpoint_id: webhook } },
        }),
      ),
  });
  return (
    <Stack>
      <Anchor component={Link} to={`/tenants/${tenant}/webhooks`} size="sm">
        All webhooks
      </Anchor>
      <Read of={read} what="the webhook">
        {({ data, etag }) => (
          <>
            <SimpleGrid cols={{ base: 1, md: 2 }}>
              <About tenant={tenant} hook={data} />
              <Policy key={`${data.id} ${data.status}`} tenant={tenant} hook={data} etag={etag} />
            </SimpleGrid>
            {data.can.includes("list_deliveries") && <Deliveries tenant={tenant} hook={data} />}
          </>
        )}
      </Read>
    </Stack>
  );
}

function useHookChanged({ tenant, hook }: Props) {
  const client = useQueryClient();
  return async () => {
    await client.invalidateQueries({ queryKey: ["tenant", tenant, "webhook", hook.id] });
    await client.invalidateQueries({ queryKey: ["tenant", tenant, "webhooks"] });
  };
}

function About({ tenant, hook }: Props) {
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h4" style={{ overflowWrap: "anywhere" }}>
          {hook.url === null ? "Webhook" : new URL(hook.url).host}
        </Title>
        <HookState hook={hook} />
      </Group>
      <Table variant="vertical" layout="auto" mb="md">
        <Table.Tbody>
          <Row name="Made">
            <Moment at={hook.created_at} />
          </Row>
          {hook.failing_since !== null && (
            <Row name="Failing since">
              <Moment at={hook.failing_since} />
            </Row>
          )}
          {hook.disabled_reason !== null && <Row name="Disabled">{hook.disabled_reason}</Row>}
          {hook.previous_secret_until !== null && (
            <Row name="Secret before signs until">
              <Moment at={hook.previous_secret_until} />
            </Row>
          )}
        </Table.Tbody>
      </Table>
      <Actions tenant={tenant} hook={hook} />
    </Card>
  );
}

type Asking = "rotate" | "disable" | "delete" | null;

function Actions({ tenant, hook }: Props) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const changed = useHookChanged({ tenant, hook });
  const once = useOnce();
  const [asking, setAsking] = useState<Asking>(null);
  const [secret, setSecret] = useState<string | null>(null);
  const close = () => setAsking(null);
  const params = { path: { tenant, endpoint_id: hook.id } };
  const move = async (status: "active" | "disabled") => {
    await heard(api.PATCH("/api/v1/tenants/{tenant}/webhooks/{endpoint_id}", { params, body: { status } }));
    await changed();
  };
  const tried = async (act: () => Promise<unknown>) => {
    try {
      await act();
    } catch (error) {
      notifications.show({ color: "red", message: failureOf(error).message });
    }
  };
  const ping = async () => {
    await heard(api.POST("/api/v1/tenants/{tenant}/webhooks/{endpoint_id}/ping", { params }));
    await client.invalidateQueries({ queryKey: ["tenant", tenant, "webhook", hook.id, "deliveries"] });
  };
  return (
    <Group>
      {hook.can.includes("ping") && <Button onClick={() => void once(() => tried(ping))}>Send a ping</Button>}
      {hook.can.includes("rotate") && (
        <Button variant="default" onClick={() => setAsking("rotate")}>
          Rotate…
        </Button>
      )}
      {hook.can.includes("change") && hook.status === "active" && (
        <Button variant="default" onClick={() => setAsking("disable")}>
          Disable…
        </Button>
      )}
      {hook.can.includes("change") && hook.status === "disabled" && (
        <Button variant="default" onClick={() => void once(() => tried(() => move("active")))}>
          Make active
        </Button>
      )}
      {hook.can.includes("delete") && (
        <Button color="red" variant="light" onClick={() => setAsking("delete")}>
          Delete…
        </Button>
      )}
      {asking === "rotate" && (
        <Rotate
          tenant={tenant}
          hook={hook}
          onClose={close}
          onDone={async (made) => {
            setSecret(made);
            close();
            await changed();
          }}
        />
      )}
      {asking === "disable" && (
        <Confirm
          title="Disable this webhook"
          effect="What waits to be sent is given up, and nothing new is sent until it is active again."
          action="Disable"
          onConfirm={() => move("disabled")}
          onClose={close}
        />
      )}
      {asking === "delete" && (
        <Confirm
          title="Delete this webhook"
          effect="It and its log of 30 days are gone, and what waits to be sent is given up."
          typed="delete"
          action="Delete"
          onConfirm={async () => {
            await leavingOf(hook.id, async () => {
              await heard(api.DELETE("/api/v1/tenants/{tenant}/webhooks/{endpoint_id}", { params }));
              await navigate({ to: `/tenants/${tenant}/webhooks` });
            });
            await client.invalidateQueries({ queryKey: ["tenant", tenant, "webhooks"] });
          }}
          onClose={close}
        />
      )}
      {secret !== null && (
        <SecretOnce title="New secret of the webhook" secret={secret} onClose={() => setSecret(null)} />
      )}
    </Group>
  );
}

const OVERLAPS = [
  { value: "0", label: "Now" },
  { value: "24", label: "In a day" },
  { value: "168", label: "In a week" },
];

function Rotate({
  tenant,
  hook,
  onClose,
  onDone,
}: Props & { onClose: () => void; onDone: (secret: string) => Promise<void> }) {
  const [overlap, setOverlap] = useState("24");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const once = useOnce();
  const send = async () => {
    setBusy(true);
    setError(null);
    try {
      const made = await heard(
        api.POST("/api/v1/tenants/{tenant}/webhooks/{endpoint_id}/rotate", {
          params: { path: { tenant, endpoint_id: hook.id } },
          body: { overlap_h: Number(overlap) },
        }),
      );
      await onDone(made.secret);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(send);
  };
  return (
    <BusyModal opened busy={busy} onClose={onClose} title="Rotate the secret">
      <form onSubmit={submit}>
        <Stack>
          <Text size="sm">Until the one of now ends, each try is signed with both.</Text>
          <Select
            label="The secret of now ends"
            data={OVERLAPS}
            allowDeselect={false}
            value={overlap}
            onChange={(chosen) => setOverlap(chosen ?? "24")}
          />
          {error !== null && <Failed error={error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose} disabled={busy}>
              Cancel
            </Button>
            <Button type="submit" loading={busy}>
              Rotate
            </Button>
          </Group>
        </Stack>
      </form>
    </BusyModal>
  );
}

function Policy({ tenant, hook, etag }: Props & { etag: string | null }) {
  const changed = useHookChanged({ tenant, hook });
  const may = hook.can.includes("change");
  const edit = useEdit<HookValues>(
    { values: hookValues({ ...hook }), etag },
    async (patch, tag) => {
      const params = {
        path: { tenant, endpoint_id: hook.id },
        header: tag === null ? {} : { "if-match": tag },
      };
      const answer = await tagged(
        api.PATCH("/api/v1/tenants/{tenant}/webhooks/{endpoint_id}", { params, body: patch }),
      );
      await changed();
      return { values: hookValues({ ...answer.data }), etag: answer.etag };
    },
    hookValues,
  );
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Where it goes, and with what
      </Title>
      <ConflictNotice edit={edit} />
      <Stack>
        <HookFields values={edit.values} set={edit.set} failure={edit.failure} disabled={!may} />
        {edit.failure !== null && edit.failure.param === undefined && <Failed error={edit.failure} />}
      </Stack>
      {may && <SaveBar edit={edit} />}
    </Card>
  );
}
