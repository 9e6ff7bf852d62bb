import { Anchor, Badge, Button, Group, Select, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { Moment, Mono } from "../parts/figures";
import { TextFilter } from "../parts/filters";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import type { KeysSearch } from "../routes/tenants";
import { CreateKey } from "./key-create";
import { useTenant, useTenantId } from "./tenant-data";

type Key = Schemas["KeyOut"];

const COLUMNS: Column<Key>[] = [
  {
    title: "Name",
    cell: (key) => (
      <Anchor component={Link} to={`/tenants/${key.tenant}/keys/${key.id}`}>
        {key.name}
      </Anchor>
    ),
  },
  { title: "Key", cell: (key) => <Mono>{`mt_${key.id}_…`}</Mono> },
  { title: "State", cell: (key) => <KeyState apiKey={key} /> },
  { title: "May", cell: (key) => <Text size="sm">{key.scopes.join(", ")}</Text> },
  { title: "Last used", cell: (key) => <Moment at={key.last_used_at} /> },
  { title: "Expires", cell: (key) => <Moment at={key.expires_at} /> },
];

export function KeysPage() {
  const id = useTenantId();
  const tenant = useTenant();
  const search = useSearch({ from: "/inside/tenants/$tenant/keys" });
  const navigate = useNavigate({ from: "/tenants/$tenant/keys" });
  const [creating, setCreating] = useState(false);
  const query = {
    limit: 50,
    cursor: search.cursor ?? null,
    name_prefix: search.name ?? null,
    state: search.state ?? null,
  };
  const rows = useQuery({
    queryKey: ["tenant", id, "keys", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/keys", { params: { path: { tenant: id }, query } })),
    placeholderData: keepPreviousData,
  });
  const filter = (next: Partial<KeysSearch>) =>
    void navigate({
      search: (before) => ({ ...before, ...next, cursor: undefined }),
      replace: true,
      resetScroll: false,
    });
  return (
    <>
      <Group align="end" justify="space-between" mb="md">
        <Group align="end" gap="sm">
          <TextFilter label="Name begins with" value={search.name} onChange={(name) => filter({ name })} />
          <Select
            label="State"
            placeholder="Any"
            clearable
            clearButtonProps={{ "aria-label": "Any state" }}
            data={["live", "expired", "revoked"]}
            value={search.state ?? null}
            onChange={(state) => filter({ state: (state as KeysSearch["state"]) ?? undefined })}
            w={{ base: "100%", xs: 160 }}
          />
        </Group>
        {tenant.data?.can.includes("create_key") && (
          <Button onClick={() => setCreating(true)}>Create key…</Button>
        )}
      </Group>
      <DataTable
        caption="API keys, newest first"
        columns={COLUMNS}
        rows={rows}
        rowKey={(key) => key.id}
        cursor={search.cursor}
        empty={
          search.name === undefined && search.state === undefined ? (
            <Empty
              title="There is no key yet"
              command={`motet keys create ${tenant.data?.name ?? "TENANT"} --name first`}
            />
          ) : (
            <Empty title="No key is like this" />
          )
        }
      />
      {creating && <CreateKey onClose={() => setCreating(false)} />}
    </>
  );
}

export function KeyState({ apiKey }: { apiKey: Key }) {
  if (apiKey.revoked_at !== null) {
    return <Badge color="gray">revoked</Badge>;
  }
  if (apiKey.expires_at !== null && new Date(apiKey.expires_at) <= new Date()) {
    return <Badge color="orange">expired</Badge>;
  }
  return <Badge color="teal">live</Badge>;
}
