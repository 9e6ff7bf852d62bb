import { Button, Card, Checkbox, Group, SimpleGrid, Stack, Table, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { Confirm } from "../parts/confirm";
import { Bytes, Count, countText, Moment, Mono } from "../parts/figures";
import { Read } from "../parts/states";
import { useAdapterPath } from "./adapter-data";
import { PurgeButton, RestoreButton, RetireButton } from "./adapter-end";
import { VersionState } from "./adapter-state";
import { ProofFacts, ProofReport } from "./proof-report";
import { Row } from "./tenant-overview";
import { Aliases } from "./version-parts";

type Version = Schemas["VersionOut"];
type Proof = Schemas["ProofOut"];

const LOOK_MS = 1_500;

export function VersionPage() {
  const path = useAdapterPath();
  const number = Number(
    useParams({ from: "/inside/tenants/$tenant/adapters/$name/versions/$number" }).number,
  );
  const key = ["tenant", path.tenant, "adapter", path.name, "version", number];
  const version = useQuery({
    queryKey: key,
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/adapters/{name}/versions/{number}", {
          params: { path: { ...path, number }, query: { state: "any" } },
        }),
      ),
    refetchInterval: ({ state }) => (goesOn(state.data) ? LOOK_MS : false),
  });
  const proof = useQuery({
    queryKey: [...key, "proof"],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/adapters/{name}/versions/{number}/proof", {
          params: { path: { ...path, number } },
        }),
      ),
    enabled: version.data?.can.includes("read_proof") ?? false,
    refetchInterval: ({ state }) => (isWaiting(state.data) || goesOn(version.data) ? LOOK_MS : false),
  });
  return (
    <Read of={version} what="the version">
      {(found) => (
        <Stack>
          <SimpleGrid cols={{ base: 1, lg: 2 }} style={{ alignItems: "start" }}>
            <About version={found} />
            {found.can.includes("read_proof") && (
              <Read of={proof} what="the report">
                {(report) => <ProofReport proof={report} again={<ProveAgain version={found} />} />}
              </Read>
            )}
          </SimpleGrid>
          {proof.data !== undefined && <ProofFacts proof={proof.data} />}
        </Stack>
      )}
    </Read>
  );
}

function goesOn(version: Version | undefined): boolean {
  return version !== undefined && (version.state === "uploaded" || version.state === "proving");
}

function isWaiting(proof: Proof | undefined): boolean {
  return proof !== undefined && proof.waiting.length > 0;
}

function About({ version }: { version: Version }) {
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h4">
          {version.id}
        </Title>
        <VersionState state={version.lost_at === null ? version.state : "lost"} />
      </Group>
      <Table variant="vertical" layout="auto" mb="md">
        <Table.Tbody>
          <Row name="Aliases">
            {version.aliases.length === 0 ? "none" : <Aliases names={version.aliases} />}
          </Row>
          <Row name="Base">
            <Mono>{version.base}</Mono>
          </Row>
          <Row name="Parameters">
            <Count value={version.num_parameters} /> in{" "}
            <Count value={version.num_modules} unit={version.num_modules === 1 ? "module" : "modules"} />
          </Row>
          <Row name="Size">
            <Bytes value={version.bytes} />
          </Row>
          <Row name="Uploaded">
            <Moment at={version.created_at} />
          </Row>
          {version.retired_at !== null && (
            <>
              <Row name="Retired">
                <Moment at={version.retired_at} />
              </Row>
              <Row name="Can be restored until">
                <Moment at={version.purges_at} absent="not any more" />
              </Row>
            </>
          )}
          {version.lost_at !== null && (
            <Row name="Lost">
              <Moment at={version.lost_at} /> The store has lost its bytes: upload it again.
            </Row>
          )}
          <Row name="Digest">
            <Mono>{version.digest}</Mono>
          </Row>
          <Row name="Artefact">
            <Mono>{version.artefact}</Mono>
          </Row>
        </Table.Tbody>
      </Table>
      <Group>
        <RestoreButton can={version.can} name={version.adapter} number={version.version} />
        <RetireButton can={version.can} name={version.adapter} version={version} />
        <PurgeButton can={version.can} name={version.adapter} version={version} />
      </Group>
    </Card>
  );
}

function ProveAgain({ version }: { version: Version }) {
  const [asking, setAsking] = useState(false);
  const [longest, setLongest] = useState(false);
  const client = useQueryClient();
  const path = useAdapterPath();
  if (!version.can.includes("prove")) {
    return null;
  }
  return (
    <>
      <Button variant="default" onClick={() => setAsking(true)}>
        Prove again…
      </Button>
      {asking && (
        <Confirm
          title={`Prove ${version.id} again`}
          effect={`It answers as before meanwhile. Should it not pass, and on no other weights of its base either, it is rejected${
            version.aliases.length > 0
              ? `, and ${countText(version.aliases.length, version.aliases.length === 1 ? "alias stops" : "aliases stop")}`
              : ""
          }.`}
          action="Prove"
          dangerous={false}
          onConfirm={async () => {
            await heard(
              api.POST("/api/v1/tenants/{tenant}/adapters/{name}/versions/{number}/proof", {
                params: { path: { ...path, number: version.version } },
                body: { longest },
              }),
            );
            await client.invalidateQueries({ queryKey: ["tenant", path.tenant, "adapter", path.name] });
          }}
          onClose={() => setAsking(false)}
        >
          <Checkbox
            label="At the longest context that the base takes, too"
            checked={longest}
            onChange={(event) => setLongest(event.currentTarget.checked)}
          />
        </Confirm>
      )}
    </>
  );
}
