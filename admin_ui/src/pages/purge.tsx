import { Alert, Anchor, Badge, Card, Group, Progress, Stack, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Count, Moment, Mono } from "../parts/figures";
import { Page } from "../parts/page";
import { Scrolls } from "../parts/scrolls";
import { Read } from "../parts/states";

type Purge = Schemas["PurgeOut"];

const LOOK_MS = 2_000;
const FROM = "/inside/tenants/$tenant/adapters/$name/purge";
const MEANINGS: Record<string, string> = {
  held: "a request runs on it, or it can't be removed just now",
  away: "the replica is away, and serves nothing before it has purged",
  purged: "no byte is left",
  unverified: "purged, but the replica can't look at its disk",
  gone: "the replica was removed before it was asked",
};

/** How far the end of bytes is. The adapter itself may be gone by now, so this page stands beside its own. */
export function PurgePage() {
  const { tenant, name } = useParams({ from: FROM });
  const { version } = useSearch({ from: FROM });
  const target = version === undefined ? name : `${name}@${version}`;
  const read = useQuery({
    queryKey: ["tenant", tenant, "purge", target],
    queryFn: () =>
      heard(
        version === undefined
          ? api.GET("/api/v1/tenants/{tenant}/adapters/{name}/purge", { params: { path: { tenant, name } } })
          : api.GET("/api/v1/tenants/{tenant}/adapters/{name}/versions/{number}/purge", {
              params: { path: { tenant, name, number: version } },
            }),
      ),
    refetchInterval: ({ state }) => (state.data?.state === "purging" ? LOOK_MS : false),
    staleTime: 0,
  });
  const path = `/api/v1/tenants/${tenant}/adapters/${name}${version === undefined ? "" : `/versions/${version}`}/purge`;
  return (
    <>
      <Anchor component={Link} to={`/tenants/${tenant}/adapters`} size="sm">
        All adapters
      </Anchor>
      <Page
        title={`Purge of ${target}`}
        calls={[
          { method: "POST", path, body: { confirm: target } },
          { method: "GET", path },
        ]}
      >
        <Read of={read} what="the purge">
          {(purge) => <Progressing purge={purge} />}
        </Read>
      </Page>
    </>
  );
}

function Progressing({ purge }: { purge: Purge }) {
  const all = purge.num_purging + purge.num_purged + purge.num_kept;
  const done = all - purge.num_purging;
  return (
    <Stack>
      <Alert
        role="status"
        color={purge.state === "purged" ? "teal" : "blue"}
        classNames={{ title: "plain" }}
        title={purge.state === "purged" ? "No byte is left" : "It goes on by itself"}
      >
        <Text size="sm">
          <Count value={purge.num_purged} unit="purged" />,{" "}
          <Count value={purge.num_purging} unit="under way" />,{" "}
          <Count value={purge.num_kept} unit="kept for others with the same content" />.
        </Text>
        <Progress
          value={all === 0 ? 100 : (100 * done) / all}
          mt="xs"
          aria-label={`${done} of ${all} ended`}
        />
      </Alert>
      {purge.versions.map((version) => (
        <OneVersion key={version.version} version={version} />
      ))}
    </Stack>
  );
}

function OneVersion({ version }: { version: Purge["versions"][number] }) {
  return (
    <Card withBorder>
      <Group justify="space-between" mb="xs">
        <Text fw={600}>Version {version.version}</Text>
        <Badge color={version.state === "purging" ? "blue" : "teal"}>{version.state}</Badge>
      </Group>
      {version.kept_for.length > 0 && (
        <Text size="sm">
          Its content is also that of {version.kept_for.join(", ")}, and stays until these end.
        </Text>
      )}
      <Text size="sm">
        Out of the store: <Moment at={version.object_gone_at} absent="not yet" />. Ended:{" "}
        <Moment at={version.purged_at} absent="not yet" />.
      </Text>
      {version.replicas.length > 0 && (
        <Scrolls minWidth={480} what={`Replicas of version ${version.version}`}>
          <Table>
            <caption className="off-screen">Replicas of version {version.version}</caption>
            <Table.Thead>
              <Table.Tr>
                <Table.Th scope="col">Replica</Table.Th>
                <Table.Th scope="col">State</Table.Th>
                <Table.Th scope="col">Since</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {version.replicas.map((replica) => (
                <Table.Tr key={replica.replica}>
                  <Table.Td>
                    <Mono>{replica.replica}</Mono>
                  </Table.Td>
                  <Table.Td>
                    {replica.state}: {MEANINGS[replica.state]}
                  </Table.Td>
                  <Table.Td>
                    <Moment at={replica.changed_at} />
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Scrolls>
      )}
    </Card>
  );
}
