import { Anchor, Badge, Button, Group, Modal, Select, Stack, TextInput } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { failureOf } from "../api/failure";
import { useUnsaved } from "../parts/edits";
import { Count, Moment } from "../parts/figures";
import { TextFilter } from "../parts/filters";
import { NumberField } from "../parts/number-field";
import { useOnce } from "../parts/once";
import { Page } from "../parts/page";
import { Empty, Failed } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import type { TenantsSearch } from "../routes/tenants";
import { useSession } from "../session/hooks";

type Tenant = Schemas["TenantOut"];

const COLUMNS: Column<Tenant>[] = [
  {
    title: "Name",
    cell: (tenant) => (
      <Anchor component={Link} to={`/tenants/${tenant.id}`}>
        {tenant.name}
      </Anchor>
    ),
  },
  { title: "Status", cell: (tenant) => <TenantStatus tenant={tenant} /> },
  { title: "Weight", end: true, cell: (tenant) => <Count value={tenant.share_weight} /> },
  { title: "Requests/min", end: true, cell: (tenant) => <Count value={tenant.requests_per_minute} /> },
  { title: "Tokens/min", end: true, cell: (tenant) => <Count value={tenant.tokens_per_minute} /> },
  { title: "Made", cell: (tenant) => <Moment at={tenant.created_at} /> },
];

export function TenantsPage() {
  const session = useSession();
  const search = useSearch({ from: "/inside/tenants" });
  const navigate = useNavigate({ from: "/tenants" });
  const [creating, setCreating] = useState(false);
  const query = {
    limit: 50,
    cursor: search.cursor ?? null,
    name_prefix: search.name ?? null,
    status: search.status ?? null,
  };
  const rows = useQuery({
    queryKey: ["tenants", "list", query],
    queryFn: () => heard(api.GET("/api/v1/tenants", { params: { query } })),
    placeholderData: keepPreviousData,
  });
  const filter = (next: Partial<TenantsSearch>) =>
    void navigate({
      search: (before) => ({ ...before, ...next, cursor: undefined }),
      replace: true,
      resetScroll: false,
    });
  const filtered = search.name !== undefined || search.status !== undefined;

  return (
    <Page
      title="Tenants"
      calls={[
        { method: "GET", path: "/api/v1/tenants?limit=50" },
        { method: "POST", path: "/api/v1/tenants", body: { name: "acme" } },
      ]}
      actions={
        session.can.includes("create_tenant") && (
          <Button onClick={() => setCreating(true)}>Create tenant…</Button>
        )
      }
    >
      <Group align="end" gap="sm">
        <TextFilter label="Name begins with" value={search.name} onChange={(name) => filter({ name })} />
        <Select
          label="Status"
          placeholder="Any"
          clearable
          clearButtonProps={{ "aria-label": "Any status" }}
          data={[
            { value: "active", label: "Active" },
            { value: "suspended", label: "Suspended" },
          ]}
          value={search.status ?? null}
          onChange={(status) => filter({ status: (status as TenantsSearch["status"]) ?? undefined })}
          w={{ base: "100%", xs: 160 }}
        />
      </Group>
      <DataTable
        caption="Tenants, oldest first"
        columns={COLUMNS}
        rows={rows}
        rowKey={(tenant) => tenant.id}
        cursor={search.cursor}
        empty={
          filtered ? (
            <Empty title="No tenant is like this" />
          ) : (
            <Empty title="There is no tenant yet" command="motet tenants create acme" />
          )
        }
      />
      {creating && <CreateTenant onClose={() => setCreating(false)} />}
    </Page>
  );
}

export function TenantStatus({ tenant }: { tenant: Tenant }) {
  if (tenant.lifecycle !== "active") {
    return <Badge color="red">{tenant.lifecycle}</Badge>;
  }
  const active = tenant.status === "active";
  return <Badge color={active ? "teal" : "orange"}>{tenant.status}</Badge>;
}

function CreateTenant({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [name, setName] = useState("");
  const once = useOnce();
  const [weight, setWeight] = useState<number | null>(1);
  useUnsaved(name !== "", true);
  const create = useMutation({
    mutationFn: () => heard(api.POST("/api/v1/tenants", { body: { name, share_weight: weight ?? 1 } })),
    onSuccess: async (made) => {
      client.setQueryData(["tenant", made.id], made);
      await client.invalidateQueries({ queryKey: ["tenants"] });
      await navigate({ to: "/tenants/$tenant", params: { tenant: made.id } });
    },
  });
  const failure = create.error === null ? null : failureOf(create.error);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(() => create.mutateAsync().catch(() => {})); // what it failed for is shown
  };
  return (
    <Modal opened onClose={onClose} title="Create tenant">
      <form onSubmit={submit}>
        <Stack>
          <TextInput
            label="Name"
            description="Lower case letters, digits, dots, dashes; unique"
            value={name}
            error={failure?.param === "name" ? failure.message : null}
            onChange={(event) => setName(event.currentTarget.value)}
            required
            withAsterisk={false}
            data-autofocus
          />
          <NumberField
            label="Weight in the queue"
            description="1 to 100, beside other tenants' weights"
            min={1}
            max={100}
            allowDecimal={false}
            value={weight}
            onChange={setWeight}
          />
          {failure !== null && failure.param !== "name" && <Failed error={failure} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={create.isPending}>
              Create
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
