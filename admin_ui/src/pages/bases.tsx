import {
  Anchor,
  Badge,
  Button,
  Card,
  Code,
  Group,
  Modal,
  Progress,
  Stack,
  Table,
  TagsInput,
  Text,
  TextInput,
  Title,
} from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas, tagged } from "../api/client";
import { of } from "../live/fresh";
import { ConflictNotice, SaveBar, type Saved, useEdit, useUnsaved } from "../parts/edits";
import { countText, Moment, Mono } from "../parts/figures";
import { useOnce } from "../parts/once";
import { Page } from "../parts/page";
import { Scrolls } from "../parts/scrolls";
import { Empty, Failed, Read } from "../parts/states";
import { EndUpgrade } from "./upgrade-end";

type Base = Schemas["BaseOut"];
type Upgrade = Schemas["UpgradeOut"];

const LOOK_MS = 10_000; // an upgrade's proofs, which nobody is told of one by one

export function BasesPage() {
  const query = { limit: 50, cursor: null };
  const bases = useQuery({
    queryKey: ["bases", query],
    queryFn: () => heard(api.GET("/api/v1/bases", { params: { query } })),
    refetchInterval: LOOK_MS,
    meta: of("base"),
  });
  const weights = useQuery({
    queryKey: ["base-weights"],
    queryFn: () => tagged(api.GET("/api/v1/base-weights")),
    refetchOnWindowFocus: false,
    meta: of("base", "replica"),
  });
  return (
    <Page
      title="Bases"
      calls={[
        { method: "GET", path: "/api/v1/bases" },
        { method: "GET", path: "/api/v1/base-weights" },
        { method: "POST", path: "/api/v1/bases/BASE/upgrades", body: { base_digest: "DIGEST" } },
        { method: "POST", path: "/api/v1/bases/BASE/upgrades/DIGEST/end", body: { keep: "new" } },
      ]}
    >
      <Read of={bases} what="the bases">
        {(found) =>
          found.data.length === 0 ? (
            <Empty title="There is no base yet" command="motet bases list">
              <Text size="sm">The first replica that serves brings its base.</Text>
            </Empty>
          ) : (
            <Stack>
              {found.data.map((base) => (
                <BaseCard key={base.id} base={base} />
              ))}
            </Stack>
          )
        }
      </Read>
      <Read of={weights} what="the weights">
        {({ data, etag }) => <WeightsCard key={data.base_id} found={data} etag={etag} />}
      </Read>
    </Page>
  );
}

function BaseCard({ base }: { base: Base }) {
  const [beginning, setBeginning] = useState(false);
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Group gap="sm">
          <Title order={2} size="h4">
            {base.name}
          </Title>
          {base.served && <Badge color="teal">served here</Badge>}
        </Group>
        <Group gap="xs">
          <Anchor component={Link} to={`/bases/${base.id}/left-behind`} size="sm">
            Versions of other bases
          </Anchor>
          {base.can.includes("begin_upgrade") && (
            <Button variant="default" size="xs" onClick={() => setBeginning(true)}>
              Upgrade…
            </Button>
          )}
        </Group>
      </Group>
      <Text size="sm">
        <Mono>{base.id}</Mono>
      </Text>
      <Text size="sm" c="dimmed">
        Since <Moment at={base.created_at} />
        {base.digests === null
          ? ". No weights were seen yet."
          : `. Weights that may serve it: ${base.digests.length}.`}
      </Text>
      {base.upgrades.length > 0 && <Upgrades base={base} />}
      {beginning && <BeginUpgrade base={base} onClose={() => setBeginning(false)} />}
    </Card>
  );
}

const STATES: Record<string, string> = { proving: "indigo", finished: "teal", abandoned: "gray" };

function Upgrades({ base }: { base: Base }) {
  return (
    <Scrolls minWidth={560} what={`Upgrades of ${base.name}, newest first`}>
      <Table verticalSpacing="xs">
        <caption className="off-screen">Upgrades of {base.name}, newest first</caption>
        <Table.Thead>
          <Table.Tr>
            {["To the weights", "State", "Versions proved there", "Begun", "Ended", "Actions"].map(
              (title) => (
                <Table.Th key={title} scope="col">
                  {title}
                </Table.Th>
              ),
            )}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {base.upgrades.map((upgrade) => (
            <UpgradeRow key={upgrade.base_digest} base={base} upgrade={upgrade} />
          ))}
        </Table.Tbody>
      </Table>
    </Scrolls>
  );
}

function UpgradeRow({ base, upgrade }: { base: Base; upgrade: Upgrade }) {
  const [ending, setEnding] = useState(false);
  return (
    <Table.Tr>
      <Table.Td>
        <code className="mono" title={upgrade.base_digest}>
          {upgrade.base_digest.slice(0, 12)}
        </code>
      </Table.Td>
      <Table.Td>
        <Badge color={STATES[upgrade.state] ?? "gray"}>{upgrade.state}</Badge>
      </Table.Td>
      <Table.Td>
        <ProvedSoFar base={base} upgrade={upgrade} />
      </Table.Td>
      <Table.Td>
        <Moment at={upgrade.started_at} />
      </Table.Td>
      <Table.Td>
        <Moment at={upgrade.ended_at} absent="not yet" />
      </Table.Td>
      <Table.Td>
        {upgrade.can.includes("end") && (
          <Button size="xs" variant="default" onClick={() => setEnding(true)}>
            End…
          </Button>
        )}
        {ending && <EndUpgrade base={base} upgrade={upgrade} onClose={() => setEnding(false)} />}
      </Table.Td>
    </Table.Tr>
  );
}

function ProvedSoFar({ base, upgrade }: { base: Base; upgrade: Upgrade }) {
  const all = upgrade.proved + upgrade.failed + upgrade.left;
  const text = `${countText(upgrade.proved)} of ${countText(all)} proved, ${countText(upgrade.left)} left`;
  return (
    <div>
      <Text size="sm" className="figures">
        {text}
        {upgrade.failed > 0 && (
          <>
            ,{" "}
            <Anchor
              component={Link}
              to={`/bases/${base.id}/left-behind`}
              search={{ digest: upgrade.base_digest } as never}
              size="sm"
            >
              {countText(upgrade.failed)} failed
            </Anchor>
          </>
        )}
      </Text>
      <Progress.Root size="sm" mt={4}>
        <Progress.Section value={share(upgrade.proved, all)} color="teal" aria-label={text} />
        <Progress.Section
          value={share(upgrade.failed, all)}
          color="red"
          aria-label={`${countText(upgrade.failed)} failed`}
        />
      </Progress.Root>
    </div>
  );
}

const share = (part: number, all: number) => (all === 0 ? 0 : (part / all) * 100);

function BeginUpgrade({ base, onClose }: { base: Base; onClose: () => void }) {
  const client = useQueryClient();
  const once = useOnce();
  const [digest, setDigest] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  useUnsaved(digest !== "", true);
  const send = async () => {
    setBusy(true);
    setError(null);
    try {
      const params = { path: { base_id: base.id } };
      await heard(
        api.POST("/api/v1/bases/{base_id}/upgrades", { params, body: { base_digest: digest.trim() } }),
      );
      await client.invalidateQueries({ queryKey: ["bases"] });
      await client.invalidateQueries({ queryKey: ["base-weights"] });
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Modal opened onClose={onClose} title={`Let other weights of ${base.name} in`}>
      <form
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          void once(send);
        }}
      >
        <Stack>
          <Text size="sm">
            Replicas with these weights serve beside those there are. Adapters are proved on them in the
            background, and go there once they passed.
          </Text>
          <TextInput
            label="Digest of the new weights"
            description="64 hex digits; an engine says its own when it starts"
            maxLength={64}
            value={digest}
            onChange={(event) => setDigest(event.currentTarget.value)}
            data-autofocus
          />
          {error !== null && <Failed error={error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={busy}>
              Let them in
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

type Weights = Schemas["WeightsOut"];

interface WeightsFields extends Record<string, unknown> {
  digests: string[];
}

const digestsOf = (found: Record<string, unknown>): WeightsFields => ({
  digests: (found.digests as string[] | null) ?? [],
});

function WeightsCard({ found, etag }: { found: Weights; etag: string | null }) {
  const client = useQueryClient();
  const may = found.can.includes("change") && !found.settled;
  const saved: Saved<WeightsFields> = { values: digestsOf({ ...found }), etag };
  const edit = useEdit(
    saved,
    async (patch, tag) => {
      const params = { header: tag === null ? {} : { "if-match": tag } };
      const body = { digests: patch.digests ?? saved.values.digests };
      const answer = await tagged(api.PUT("/api/v1/base-weights", { params, body }));
      await client.invalidateQueries({ queryKey: ["bases"] });
      await client.invalidateQueries({ queryKey: ["base-weights"] });
      return { values: digestsOf({ ...answer.data }), etag: answer.etag };
    },
    digestsOf,
  );
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Weights that may serve
      </Title>
      <Stack>
        {found.settled && (
          <Text size="sm">
            <Code>MOTET_BASE_DIGESTS</Code> says which may, and goes before what stands here.
          </Text>
        )}
        <ConflictNotice edit={edit} />
        <TagsInput
          label="Digests"
          description="A replica with other weights gets no request. The move to new ones is an upgrade, which proves adapters first."
          maxTags={16}
          disabled={!may}
          value={edit.values.digests}
          onChange={(digests) => edit.set("digests", digests)}
        />
        <SeenWeights found={found} />
        {edit.failure !== null && <Failed error={edit.failure} />}
        {may && <SaveBar edit={edit} />}
      </Stack>
    </Card>
  );
}

function SeenWeights({ found }: { found: Weights }) {
  const seen = Object.entries(found.seen);
  if (seen.length === 0) {
    return null;
  }
  return (
    <div>
      <Text size="sm" fw={500}>
        What replicas say they have
      </Text>
      {seen.map(([url, digest]) => (
        <Text key={url} size="sm">
          <Mono>{url}</Mono>: {digest === null ? "not said" : <Mono>{digest}</Mono>}
        </Text>
      ))}
    </div>
  );
}
