import { Anchor, Button, Group, Modal, Select, Stack, Text, TextInput } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { failureOf } from "../api/failure";
import { useUnsaved } from "../parts/edits";
import { Moment } from "../parts/figures";
import { useOnce } from "../parts/once";
import { Empty, Failed } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { useTenant, useTenantId } from "./tenant-data";

type Member = Schemas["MemberOut"];
export type RoleName = Schemas["MemberPatch"]["role"];

export function MembersPage() {
  const id = useTenantId();
  const tenant = useTenant();
  const { cursor } = useSearch({ from: "/inside/tenants/$tenant/members" });
  const [inviting, setInviting] = useState(false);
  const query = { limit: 50, cursor: cursor ?? null };
  const rows = useQuery({
    queryKey: ["tenant", id, "members", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/members", { params: { path: { tenant: id }, query } })),
    placeholderData: keepPreviousData,
  });
  const columns: Column<Member>[] = [
    {
      title: "Email",
      cell: (member) => (
        <Anchor component={Link} to={`/tenants/${member.tenant}/members/${member.id}`}>
          {member.email}
        </Anchor>
      ),
    },
    { title: "Role", cell: (member) => <Text size="sm">{member.role}</Text> },
    { title: "Added", cell: (member) => <Moment at={member.created_at} /> },
    { title: "Changed", cell: (member) => <Moment at={member.updated_at} /> },
  ];
  return (
    <>
      <Group justify="space-between" mb="md">
        <Text size="sm" c="dimmed" maw={560}>
          Who may act for this tenant here. Whom a log-in provider's groups let in is not in this list.
        </Text>
        {tenant.data?.can.includes("add_member") && (
          <Button onClick={() => setInviting(true)}>Add member…</Button>
        )}
      </Group>
      <DataTable
        caption="Members, oldest first"
        columns={columns}
        rows={rows}
        rowKey={(member) => member.id}
        cursor={cursor}
        empty={
          <Empty
            title="There is no member yet"
            command={`motet members add ada@example.com --tenant ${tenant.data?.name ?? "TENANT"} --role …`}
          >
            <Text size="sm">Operators act for every tenant without being one.</Text>
          </Empty>
        }
      />
      {inviting && <AddMember roles={rows.data?.roles ?? []} onClose={() => setInviting(false)} />}
    </>
  );
}

interface RoleProps {
  roles: Schemas["RoleOut"][];
  value: string | null;
  onChange: (role: RoleName) => void;
  disabled?: boolean;
  error?: string | null;
}

/** Which there are, and what each may do, the API says. */
export function RoleField({ roles, value, onChange, disabled = false, error = null }: RoleProps) {
  return (
    <Select
      label="Role"
      description={roles.find((each) => each.role === value)?.what ?? "What the member may do"}
      data={roles.map((each) => each.role)}
      allowDeselect={false}
      disabled={disabled}
      error={error}
      value={value}
      onChange={(role) => role !== null && onChange(role as RoleName)}
    />
  );
}

function AddMember({ roles, onClose }: { roles: Schemas["RoleOut"][]; onClose: () => void }) {
  const id = useTenantId();
  const client = useQueryClient();
  const navigate = useNavigate();
  const once = useOnce();
  const [email, setEmail] = useState("");
  const [chosen, setChosen] = useState<RoleName | null>(null);
  const role = chosen ?? roles.at(-1)?.role ?? null; // that of least
  useUnsaved(email !== "", true);
  const add = useMutation({
    mutationFn: () =>
      heard(
        api.POST("/api/v1/tenants/{tenant}/members", {
          params: { path: { tenant: id } },
          body: { email: email.trim(), role: role as RoleName },
        }),
      ),
    onSuccess: async (made) => {
      await client.invalidateQueries({ queryKey: ["tenant", id, "members"] });
      await navigate({ to: `/tenants/${id}/members/${made.id}` });
    },
  });
  const failure = add.error === null ? null : failureOf(add.error);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(() => add.mutateAsync().catch(() => {})); // what it failed for is shown
  };
  return (
    <Modal opened onClose={onClose} title="Add member">
      <form onSubmit={submit}>
        <Stack>
          <TextInput
            label="Email"
            description="No mail is sent. Who logs in by a provider comes in with it; others need a password, or a token"
            type="email"
            required
            withAsterisk={false}
            data-autofocus
            error={failure?.param === "email" ? failure.message : null}
            value={email}
            onChange={(event) => setEmail(event.currentTarget.value)}
          />
          <RoleField roles={roles} value={role} onChange={setChosen} />
          {failure !== null && failure.param !== "email" && <Failed error={failure} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={add.isPending}>
              Add
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
