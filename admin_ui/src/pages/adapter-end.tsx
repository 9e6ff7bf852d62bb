import { Button, Checkbox } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { type QueryClient, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { Confirm } from "../parts/confirm";
import { bytesText, countText } from "../parts/figures";
import { OTHERS } from "../parts/traffic-steps";
import { useAdapterPath, useTraffic } from "./adapter-data";

type Version = Schemas["VersionOut"];

interface Props {
  can: readonly string[];
  name: string;
  /** Absent: the whole adapter, with all its versions. */
  version?: Version;
}

const COUNTED = 200; // versions that a confirmation counts
const COUNTING = "Counting what it ends…";
const NONE: Version[] = [];

/** What is shown of it is read anew. `rest`: whether lists are, too; after a retirement they may be gone, and what
 * takes their place asks by itself. A report is asked for when the version says that it may be. */
async function tellAll(
  client: QueryClient,
  tenant: string,
  name: string,
  rest: "active" | "none",
): Promise<void> {
  const one = ["tenant", tenant, "adapter", name];
  const predicate = ({ queryKey }: { queryKey: readonly unknown[] }) => !queryKey.includes("proof");
  await client.invalidateQueries({ queryKey: one, exact: true });
  await client.invalidateQueries({ queryKey: [...one, "version"], predicate });
  await client.invalidateQueries({ queryKey: one, predicate, refetchType: rest });
  await client.invalidateQueries({ queryKey: [...one, "version"], refetchType: "none" });
  await client.invalidateQueries({ queryKey: ["tenant", tenant, "adapters"] });
}

export function RetireButton(props: Props) {
  const [asking, setAsking] = useState(false);
  if (!props.can.includes("retire")) {
    return null;
  }
  return (
    <>
      <Button color="red" variant="light" onClick={() => setAsking(true)}>
        Retire {props.version === undefined ? "adapter" : "version"}…
      </Button>
      {asking && <Retire {...props} onClose={() => setAsking(false)} />}
    </>
  );
}

function Retire({ name, version, onClose }: Props & { onClose: () => void }) {
  const { tenant } = useAdapterPath();
  const client = useQueryClient();
  const target = version?.id ?? name;
  const { stops, unknown } = useStops(name, version, { there: true, retired: false });
  const days = useDaysKept();
  return (
    <Confirm
      title={`Retire ${target}`}
      effect={
        stops === null ? COUNTING : `${stops} What runs on it may finish. It can be restored for ${days}.`
      }
      typed={target}
      ready={stops !== null}
      unknown={unknown}
      action="Retire"
      onConfirm={async () => {
        if (version === undefined) {
          const params = { path: { tenant, name } };
          await heard(api.DELETE("/api/v1/tenants/{tenant}/adapters/{name}", { params }));
        } else {
          const params = { path: { tenant, name, number: version.version } };
          await heard(api.DELETE("/api/v1/tenants/{tenant}/adapters/{name}/versions/{number}", { params }));
        }
        await tellAll(client, tenant, name, "none");
      }}
      onClose={onClose}
    />
  );
}

export function PurgeButton(props: Props) {
  const [asking, setAsking] = useState(false);
  if (!props.can.includes("purge")) {
    return null;
  }
  return (
    <>
      <Button color="red" variant="light" onClick={() => setAsking(true)}>
        Purge {props.version === undefined ? "adapter" : "version"}…
      </Button>
      {asking && <Purge {...props} onClose={() => setAsking(false)} />}
    </>
  );
}

function Purge({ can, name, version, onClose }: Props & { onClose: () => void }) {
  const { tenant } = useAdapterPath();
  const client = useQueryClient();
  const navigate = useNavigate();
  const target = version?.id ?? name;
  const ends = { there: can.includes("retire"), retired: can.includes("restore") };
  const { stops, unknown } = useStops(name, version, ends);
  return (
    <Confirm
      title={`Purge ${target} for good`}
      effect={
        stops === null
          ? COUNTING
          : `${stops} Its bytes leave the store and every replica. Nobody brings them back.`
      }
      typed={target}
      ready={stops !== null}
      unknown={unknown}
      action="Purge"
      onConfirm={async () => {
        const body = { confirm: target };
        if (version === undefined) {
          const params = { path: { tenant, name } };
          await heard(api.POST("/api/v1/tenants/{tenant}/adapters/{name}/purge", { params, body }));
        } else {
          const params = { path: { tenant, name, number: version.version } };
          await heard(
            api.POST("/api/v1/tenants/{tenant}/adapters/{name}/versions/{number}/purge", { params, body }),
          );
        }
        await navigate({
          to: `/tenants/${tenant}/adapters/${name}/purge`,
          search: version === undefined ? {} : { version: version.version },
        } as never);
        client.removeQueries({ queryKey: ["tenant", tenant, "adapter", name] });
        await client.invalidateQueries({ queryKey: ["tenant", tenant, "adapters"] });
      }}
      onClose={onClose}
    />
  );
}

interface Stops {
  stops: string | null;
  unknown: { error: unknown; onRetry: () => void } | undefined;
}

/** What ends, in numbers: of one version what is known of it, of an adapter its versions, counted first. Null until
 * they are. */
function useStops(
  name: string,
  version: Version | undefined,
  ends: { there: boolean; retired: boolean },
): Stops {
  const { tenant } = useAdapterPath();
  const there = useVersions(tenant, name, null, version === undefined && ends.there);
  const retired = useVersions(tenant, name, "retired", version === undefined && ends.retired);
  const traffic = useTraffic(tenant);
  const failed = [there, retired].find((each) => each.data === undefined && each.error !== null);
  if (there.data === undefined || retired.data === undefined) {
    const unknown =
      failed === undefined ? undefined : { error: failed.error, onRetry: () => void failed.refetch() };
    return { stops: null, unknown };
  }
  const versions = version === undefined ? [...there.data, ...retired.data] : [version];
  const bytes = versions.reduce((sum, each) => sum + each.bytes, 0);
  const aliases = [...new Set(versions.flatMap((each) => each.aliases))].sort();
  const many = version === undefined && versions.length >= COUNTED ? "at least " : "";
  const stops =
    `Ends ${many}${counted(versions.length, "version")} of ${bytesText(bytes)} and ` +
    `${counted(aliases.length, "alias", "aliases")}${aliases.length > 0 ? ` (${aliases.join(", ")})` : ""} of ` +
    `${name}${asked(traffic, name)}.`;
  return { stops, unknown: undefined };
}

function asked(traffic: ReturnType<typeof useTraffic>, name: string): string {
  const found = traffic?.data.find((series) => series.key === name)?.total.requests;
  const isUnknown =
    traffic === undefined || (found === undefined && traffic.data.some(({ key }) => key === OTHERS));
  return isUnknown ? "" : `, which had ${counted(found ?? 0, "request")} in the last 24 h`;
}

function useVersions(tenant: string, name: string, state: "retired" | null, wanted: boolean) {
  const query = { limit: COUNTED, state };
  const found = useQuery({
    queryKey: ["tenant", tenant, "adapter", name, "versions", query],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/adapters/{name}/versions", {
          params: { path: { tenant, name }, query },
        }),
      ),
    enabled: wanted,
  });
  return { data: wanted ? found.data?.data : NONE, error: found.error, refetch: found.refetch };
}

function useDaysKept(): string {
  const { tenant } = useAdapterPath();
  const rules = useQuery({
    queryKey: ["tenant", tenant, "retention"],
    queryFn: () => heard(api.GET("/api/v1/tenants/{tenant}/retention", { params: { path: { tenant } } })),
  });
  const days = rules.data?.rules.find((rule) => rule.kind === "retired_adapters")?.days;
  return days === undefined ? "the tenant's retention" : counted(days, "day");
}

function counted(count: number, one: string, many = `${one}s`): string {
  return countText(count, count === 1 ? one : many);
}

interface RestoreProps {
  can: readonly string[];
  name: string;
  number?: number;
}

export function RestoreButton({ can, name, number }: RestoreProps) {
  const [asking, setAsking] = useState(false);
  const [aliases, setAliases] = useState(true);
  const { tenant } = useAdapterPath();
  const client = useQueryClient();
  if (!can.includes("restore")) {
    return null;
  }
  const restore = async () => {
    const body = { aliases };
    const made = await heard(
      number === undefined
        ? api.POST("/api/v1/tenants/{tenant}/adapters/{name}/restore", {
            params: { path: { tenant, name } },
            body,
          })
        : api.POST("/api/v1/tenants/{tenant}/adapters/{name}/versions/{number}/restore", {
            params: { path: { tenant, name, number } },
            body,
          }),
    );
    notifications.show({ message: told(made) });
    await tellAll(client, tenant, name, "active");
  };
  return (
    <>
      <Button onClick={() => setAsking(true)}>Restore {number === undefined ? "adapter" : "version"}…</Button>
      {asking && (
        <Confirm
          title={`Restore ${number === undefined ? name : `${name}@${number}`}`}
          effect={
            number === undefined
              ? "All its retired versions come back as they were."
              : "It comes back as it was when it was retired."
          }
          action="Restore"
          dangerous={false}
          onConfirm={restore}
          onClose={() => setAsking(false)}
        >
          <Checkbox
            label="Aliases that pointed to it, and are free, point to it again"
            checked={aliases}
            onChange={(event) => setAliases(event.currentTarget.checked)}
          />
        </Confirm>
      )}
    </>
  );
}

function told({ versions, gone, aliases, aliases_left }: Schemas["RestoredOut"]): string {
  const back = Object.keys(aliases);
  const left = Object.keys(aliases_left);
  return [
    `Back: ${versions.map(({ id }) => id).join(", ")}.`,
    back.length > 0 ? `Aliases again: ${back.join(", ")}.` : "",
    left.length > 0 ? `Not moved: ${left.join(", ")}.` : "",
    gone.length > 0 ? `Gone from the store: ${gone.join(", ")}.` : "",
  ]
    .filter(Boolean)
    .join(" ");
}
