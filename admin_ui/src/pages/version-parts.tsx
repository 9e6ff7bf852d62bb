import { Anchor, Badge, Group } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import type { Schemas } from "../api/client";
import { useAdapterPath } from "./adapter-data";

type Version = Schemas["VersionOut"];

export function Aliases({ names }: { names: string[] }) {
  return (
    <Group gap="xs">
      {names.map((name) => (
        <Badge key={name} color="indigo">
          {name}
        </Badge>
      ))}
    </Group>
  );
}

export function VersionLink({ version }: { version: Version }) {
  const { tenant } = useAdapterPath();
  return (
    <Anchor
      component={Link}
      to={`/tenants/${tenant}/adapters/${version.adapter}/versions/${version.version}`}
    >
      {version.id}
    </Anchor>
  );
}
