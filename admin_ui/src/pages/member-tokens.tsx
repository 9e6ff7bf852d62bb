import { Badge, Button, Card, Group, Stack, Text, TextInput, Title } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { BusyModal } from "../parts/busy-modal";
import { Confirm } from "../parts/confirm";
import { useUnsaved } from "../parts/edits";
import { Moment, Mono } from "../parts/figures";
import { momentOfField } from "../parts/local-minute";
import { useOnce } from "../parts/once";
import { SecretOnce } from "../parts/secret";
import { Empty, Failed } from "../parts/states";
import { type Column, DataTable } from "../parts/table";

type Member = Schemas["MemberOut"];
type Token = Schemas["TokenOut"];

export function MemberTokens({ found }: { found: Member }) {
  const { cursor } = useSearch({ from: "/inside/tenants/$tenant/members/$member" });
  const [creating, setCreating] = useState(false);
  const query = { limit: 25, cursor: cursor ?? null };
  const rows = useQuery({
    queryKey: ["tenant", found.tenant, "member", found.id, "tokens", query],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/members/{member_id}/tokens", {
          params: { path: { tenant: found.tenant, member_id: found.id }, query },
        }),
      ),
    placeholderData: keepPreviousData,
  });
  const columns: Column<Token>[] = [
    { title: "Name", cell: (token) => <Text size="sm">{token.name}</Text> },
    { title: "Token", cell: (token) => <Mono>{`mta_${token.id}_…`}</Mono> },
    { title: "State", cell: (token) => <TokenState token={token} /> },
    { title: "Made", cell: (token) => <Moment at={token.created_at} /> },
    { title: "Expires", cell: (token) => <Moment at={token.expires_at} /> },
    { title: "Actions", end: true, cell: (token) => <Revoke found={found} token={token} /> },
  ];
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <div>
          <Title order={2} size="h4">
            Tokens
          </Title>
          <Text size="sm" c="dimmed">
            For programs that use the admin API as this member, in this tenant only.
          </Text>
        </div>
        {found.can.includes("create_token") && (
          <Button variant="default" onClick={() => setCreating(true)}>
            Create token…
          </Button>
        )}
      </Group>
      <DataTable
        caption="Tokens, newest first"
        columns={columns}
        rows={rows}
        rowKey={(token) => token.id}
        plain={!found.can.includes("create_token")}
        cursor={cursor}
        empty={<Empty title="There is no token yet" />}
      />
      {creating && <CreateToken found={found} onClose={() => setCreating(false)} />}
    </Card>
  );
}

function TokenState({ token }: { token: Token }) {
  if (token.revoked_at !== null) {
    return <Badge color="gray">revoked</Badge>;
  }
  const over = token.expires_at !== null && new Date(token.expires_at) <= new Date();
  return <Badge color={over ? "orange" : "teal"}>{over ? "expired" : "live"}</Badge>;
}

function Revoke({ found, token }: { found: Member; token: Token }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  if (!token.can.includes("revoke")) {
    return null;
  }
  return (
    <>
      <Button
        size="xs"
        variant="default"
        onClick={() => setAsking(true)}
        aria-label={`Revoke ${token.name}…`}
      >
        Revoke…
      </Button>
      {asking && (
        <Confirm
          title={`Revoke ${token.name}`}
          effect="Programs that use this token are refused from their next request on, for good."
          typed={token.name}
          action="Revoke"
          onConfirm={async () => {
            const path = { tenant: found.tenant, member_id: found.id, token_id: token.id };
            await heard(
              api.DELETE("/api/v1/tenants/{tenant}/members/{member_id}/tokens/{token_id}", {
                params: { path },
              }),
            );
            await client.invalidateQueries({
              queryKey: ["tenant", found.tenant, "member", found.id, "tokens"],
            });
          }}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}

function CreateToken({ found, onClose }: { found: Member; onClose: () => void }) {
  const client = useQueryClient();
  const once = useOnce();
  const [name, setName] = useState("");
  const [until, setUntil] = useState("");
  const [secret, setSecret] = useState<string | null>(null);
  const create = useMutation({
    gcTime: 0, // its answer holds the secret
    mutationFn: async () => {
      const made = await heard(
        api.POST("/api/v1/tenants/{tenant}/members/{member_id}/tokens", {
          params: { path: { tenant: found.tenant, member_id: found.id } },
          body: { name, expires_at: momentOfField(until) },
        }),
      );
      setSecret(made.secret);
    },
    onSuccess: () =>
      client.invalidateQueries({ queryKey: ["tenant", found.tenant, "member", found.id, "tokens"] }),
  });
  useUnsaved((name !== "" || until !== "") && secret === null, true);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(() => create.mutateAsync().catch(() => {})); // what it failed for is shown
  };
  if (secret !== null) {
    return <SecretOnce title={`Token ${name}`} secret={secret} onClose={onClose} />;
  }
  return (
    <BusyModal opened busy={create.isPending} onClose={onClose} title="Create token">
      <form onSubmit={submit}>
        <Stack>
          <TextInput
            label="Name"
            description="What it is for"
            maxLength={100}
            required
            withAsterisk={false}
            data-autofocus
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          <TextInput
            label="Expires"
            description="In your own time zone; empty for never"
            type="datetime-local"
            value={until}
            onChange={(event) => setUntil(event.currentTarget.value)}
          />
          {create.error !== null && <Failed error={create.error} />}
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
