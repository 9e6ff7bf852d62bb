import { Anchor, Badge, Button, Group, Stack, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard } from "../api/client";
import { Moment, Mono } from "../parts/figures";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { useAdapter, useAdapterPath } from "./adapter-data";
import { CreateAlias } from "./alias-create";
import { type Alias, useAdapterKey, versionsOf } from "./alias-data";
import { DeleteAlias } from "./alias-delete";
import { MoveAlias } from "./alias-move";

export function AdapterAliases() {
  const path = useAdapterPath();
  const adapter = useAdapter();
  const search = useSearch({ from: "/inside/tenants/$tenant/adapters/$name/aliases" });
  const navigate = useNavigate({ from: "/tenants/$tenant/adapters/$name/aliases" });
  const [creating, setCreating] = useState(false);
  const query = { limit: 50, cursor: search.cursor ?? null };
  const rows = useQuery({
    queryKey: [...useAdapterKey(), "aliases", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/adapters/{name}/aliases", { params: { path, query } })),
    placeholderData: keepPreviousData,
  });
  const open = (alias: string | undefined) =>
    void navigate({ search: (before) => ({ ...before, open: alias }), resetScroll: false });
  return (
    <Stack>
      <Group justify="space-between" align="end">
        <Text size="sm" c="dimmed" maw={640}>
          {`A request names an alias after the @; ${path.name} alone means ${path.name}@live. Whatever is changed here holds for the next request.`}
        </Text>
        {adapter.data?.can.includes("move_alias") && (
          <Button onClick={() => setCreating(true)}>Create alias…</Button>
        )}
      </Group>
      <DataTable
        caption="Aliases, by name"
        columns={columns(path, open)}
        rows={rows}
        rowKey={(alias) => alias.id}
        cursor={search.cursor}
        empty={
          <Empty
            title="No alias points to this adapter"
            command={`motet adapters aliases set ${path.name} live 1`}
          >
            <Text size="sm">Its versions still answer by their numbers.</Text>
          </Empty>
        }
      />
      {search.open !== undefined && (
        <MoveAlias key={search.open} alias={search.open} onClose={() => open(undefined)} />
      )}
      {creating && <CreateAlias onClose={() => setCreating(false)} />}
    </Stack>
  );
}

function columns(path: { tenant: string; name: string }, open: (alias: string) => void): Column<Alias>[] {
  return [
    { title: "Alias", cell: (alias) => <Mono>{alias.id}</Mono> },
    { title: "Points to", cell: (alias) => <PointsTo alias={alias} /> },
    { title: "Rollout", cell: (alias) => <RolloutLink alias={alias} path={path} /> },
    { title: "Changed", cell: (alias) => <Moment at={alias.updated_at} /> },
    { title: "Actions", end: true, cell: (alias) => <Actions alias={alias} path={path} open={open} /> },
  ];
}

function PointsTo({ alias }: { alias: Alias }) {
  return (
    <Group gap="xs">
      {versionsOf(alias.weights).map((version) => (
        <Text key={version} span size="sm" className="figures">
          {`version ${version}: ${alias.weights[version]}\u00a0%`}
        </Text>
      ))}
    </Group>
  );
}

interface OfAlias {
  alias: Alias;
  path: { tenant: string; name: string };
}

function RolloutLink({ alias, path }: OfAlias) {
  if (alias.rollout === null) {
    return (
      <Text span size="sm" c="dimmed">
        none
      </Text>
    );
  }
  return (
    <Group gap={6} wrap="nowrap">
      <Badge color="blue">under way</Badge>
      <Anchor
        component={Link}
        to={`/tenants/${path.tenant}/adapters/${path.name}/rollouts/${alias.rollout}`}
        size="sm"
        aria-label={`Look at the rollout of ${alias.id}`}
      >
        Look
      </Anchor>
    </Group>
  );
}

function Actions({ alias, path, open }: OfAlias & { open: (alias: string) => void }) {
  const [deleting, setDeleting] = useState(false);
  return (
    <Group gap="xs" justify="flex-end" wrap="nowrap">
      {alias.can.includes("move") && (
        <Button
          size="xs"
          variant="default"
          onClick={() => open(alias.alias)}
          aria-label={`Move ${alias.id}…`}
        >
          Move…
        </Button>
      )}
      {alias.can.includes("begin_rollout") && (
        <Button
          size="xs"
          variant="default"
          component={Link}
          to={`/tenants/${path.tenant}/adapters/${path.name}/rollouts`}
          search={{ begin: alias.alias } as never}
          aria-label={`Roll out into ${alias.id}…`}
        >
          Roll out…
        </Button>
      )}
      {alias.can.includes("delete") && (
        <Button
          size="xs"
          variant="light"
          color="red"
          onClick={() => setDeleting(true)}
          aria-label={`Delete ${alias.id}…`}
        >
          Delete…
        </Button>
      )}
      {deleting && <DeleteAlias alias={alias} onClose={() => setDeleting(false)} />}
    </Group>
  );
}
