import { Anchor, Badge, Button, Group, Stack, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { failureOf } from "../api/failure";
import { BusyModal } from "../parts/busy-modal";
import { useUnsaved } from "../parts/edits";
import { Moment } from "../parts/figures";
import { useOnce } from "../parts/once";
import { SecretOnce } from "../parts/secret";
import { Empty, Failed } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { HookFields, type HookValues } from "../parts/webhook-fields";
import { useTenant, useTenantId } from "./tenant-data";

type Endpoint = Schemas["EndpointOut"];

export function WebhooksPage() {
  const id = useTenantId();
  const tenant = useTenant();
  const [creating, setCreating] = useState(false);
  const read = useQuery({
    queryKey: ["tenant", id, "webhooks"],
    queryFn: async () => {
      const found = await heard(
        api.GET("/api/v1/tenants/{tenant}/webhooks", { params: { path: { tenant: id } } }),
      );
      return { data: found.data, has_more: false, next_cursor: null }; // 16 at most: all of them
    },
  });
  const columns: Column<Endpoint>[] = [
    {
      title: "URL",
      cell: (hook) => (
        <Anchor component={Link} to={`/tenants/${id}/webhooks/${hook.id}`}>
          {hook.url ?? "can't be opened: set it again"}
        </Anchor>
      ),
    },
    { title: "State", cell: (hook) => <HookState hook={hook} /> },
    { title: "Told of", cell: (hook) => <Text size="sm">{hook.kinds?.join(", ") ?? "everything"}</Text> },
    { title: "Description", cell: (hook) => <Text size="sm">{hook.description}</Text> },
    { title: "Made", cell: (hook) => <Moment at={hook.created_at} /> },
  ];
  return (
    <>
      <Group justify="space-between" mb="md">
        <Text size="sm" c="dimmed" maw={560}>
          Where this tenant is told of events, signed, at least once, within seconds.
        </Text>
        {tenant.data?.can.includes("create_webhook") && (
          <Button onClick={() => setCreating(true)}>Create webhook…</Button>
        )}
      </Group>
      <DataTable
        caption="Webhooks, oldest first"
        columns={columns}
        rows={read}
        rowKey={(hook) => hook.id}
        cursor={undefined}
        empty={
          <Empty
            title="There is no webhook yet"
            command={`motet webhooks create https://hooks.example.com/motet --tenant ${tenant.data?.name ?? "TENANT"}`}
          />
        }
      />
      {creating && <CreateWebhook onClose={() => setCreating(false)} />}
    </>
  );
}

export function HookState({ hook }: { hook: Endpoint }) {
  if (hook.status === "disabled") {
    return <Badge color="gray">disabled</Badge>;
  }
  return hook.failing_since === null ? (
    <Badge color="teal">active</Badge>
  ) : (
    <Badge color="red">failing</Badge>
  );
}

const FIRST: HookValues = { url: "", description: "", kinds: null };

function CreateWebhook({ onClose }: { onClose: () => void }) {
  const id = useTenantId();
  const client = useQueryClient();
  const once = useOnce();
  const [values, setValues] = useState(FIRST);
  const [secret, setSecret] = useState<string | null>(null);
  const create = useMutation({
    gcTime: 0, // its answer holds the secret
    mutationFn: async () => {
      const made = await heard(
        api.POST("/api/v1/tenants/{tenant}/webhooks", { params: { path: { tenant: id } }, body: values }),
      );
      setSecret(made.secret);
    },
    onSuccess: () => client.invalidateQueries({ queryKey: ["tenant", id, "webhooks"] }),
  });
  useUnsaved(values !== FIRST && secret === null, true);
  const failure = create.error === null ? null : failureOf(create.error);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(() => create.mutateAsync().catch(() => {})); // what it failed for is shown
  };
  if (secret !== null) {
    return <SecretOnce title="Secret of the webhook" secret={secret} onClose={onClose} />;
  }
  return (
    <BusyModal opened busy={create.isPending} onClose={onClose} title="Create webhook">
      <form onSubmit={submit}>
        <Stack>
          <HookFields
            values={values}
            set={(name, value) => setValues((before) => ({ ...before, [name]: value }))}
            failure={failure}
          />
          {failure !== null && failure.param === undefined && <Failed error={failure} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose} disabled={create.isPending}>
              Cancel
            </Button>
            <Button type="submit" loading={create.isPending}>
              Create
            </Button>
          </Group>
        </Stack>
      </form>
    </BusyModal>
  );
}
