import { Anchor, Button, Card, Group, SimpleGrid, Stack, Table, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard, type Schemas, tagged } from "../api/client";
import { Confirm } from "../parts/confirm";
import { ConflictNotice, SaveBar, useEdit } from "../parts/edits";
import { Moment, Mono } from "../parts/figures";
import { KeyFields, type KeyValues, keyValues } from "../parts/key-fields";
import { SecretOnce } from "../parts/secret";
import { Failed, Read } from "../parts/states";
import { KeyLimits } from "./key-limits";
import { RevokeKey } from "./key-revoke";
import { RotateKey } from "./key-rotate";
import { KeyState } from "./keys";
import { Row } from "./tenant-overview";

type Key = Schemas["KeyOut"];

export function KeyPage() {
  const { tenant, key } = useParams({ from: "/inside/tenants/$tenant/keys/$key" });
  const read = useQuery({
    queryKey: ["tenant", tenant, "key", key],
    queryFn: () =>
      tagged(
        api.GET("/api/v1/tenants/{tenant}/keys/{key_id}", { params: { path: { tenant, key_id: key } } }),
      ),
  });
  return (
    <Stack>
      <Anchor component={Link} to={`/tenants/${tenant}/keys`} size="sm">
        All keys
      </Anchor>
      <Read of={read} what="the key">
        {({ data, etag }) => (
          <SimpleGrid cols={{ base: 1, md: 2 }}>
            <About found={data} />
            <Policy key={data.id} found={data} etag={etag} />
            {data.can.includes("read_limits") && <KeyLimits key={`limits ${data.id}`} found={data} />}
          </SimpleGrid>
        )}
      </Read>
    </Stack>
  );
}

function useKeyChanged(found: Key) {
  const client = useQueryClient();
  const { tenant } = found;
  return async () => {
    await client.invalidateQueries({ queryKey: ["tenant", tenant, "key", found.id] });
    await client.invalidateQueries({ queryKey: ["tenant", tenant, "keys"] });
  };
}

function About({ found }: { found: Key }) {
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h4">
          {found.name}
        </Title>
        <KeyState apiKey={found} />
      </Group>
      <Table variant="vertical" layout="auto" mb="md">
        <Table.Tbody>
          <Row name="Key">
            <Mono>{`mt_${found.id}_…`}</Mono>
          </Row>
          <Row name="Made">
            <Moment at={found.created_at} />
          </Row>
          <Row name="Last used">
            <Moment at={found.last_used_at} />
          </Row>
          <Row name="Rotated">
            <Moment at={found.rotated_at} />
          </Row>
          {found.previous_until !== null && (
            <>
              <Row name="Secret before ends">
                <Moment at={found.previous_until} />
              </Row>
              <Row name="Secret before, last used">
                <Moment at={found.previous_used_at} absent="not since the rotation" />
              </Row>
            </>
          )}
          {found.revoked_at !== null && (
            <Row name="Revoked">
              <Moment at={found.revoked_at} />
            </Row>
          )}
        </Table.Tbody>
      </Table>
      <Actions found={found} />
    </Card>
  );
}

type Asking = "rotate" | "end" | "revoke" | null;

function Actions({ found }: { found: Key }) {
  const [asking, setAsking] = useState<Asking>(null);
  const [secret, setSecret] = useState<string | null>(null);
  const changed = useKeyChanged(found);
  const params = { path: { tenant: found.tenant, key_id: found.id } };
  const close = () => setAsking(null);
  return (
    <Group>
      {found.can.includes("rotate") && <Button onClick={() => setAsking("rotate")}>Rotate…</Button>}
      {found.can.includes("end_previous_secret") && (
        <Button variant="default" onClick={() => setAsking("end")}>
          End the secret before…
        </Button>
      )}
      {found.can.includes("revoke") && (
        <Button color="red" variant="light" onClick={() => setAsking("revoke")}>
          Revoke…
        </Button>
      )}
      {asking === "rotate" && (
        <RotateKey
          found={found}
          onClose={close}
          onDone={async (made) => {
            setSecret(made);
            close();
            await changed();
          }}
        />
      )}
      {asking === "end" && (
        <Confirm
          title="End the secret before"
          effect="Programs that still use the secret of before the rotation are refused with their next request."
          action="End it"
          onConfirm={async () => {
            await heard(api.DELETE("/api/v1/tenants/{tenant}/keys/{key_id}/previous-secret", { params }));
            await changed();
          }}
          onClose={close}
        />
      )}
      {asking === "revoke" && <RevokeKey found={found} onRevoked={changed} onClose={close} />}
      {secret !== null && (
        <SecretOnce title={`New secret of ${found.name}`} secret={secret} onClose={() => setSecret(null)} />
      )}
    </Group>
  );
}

function Policy({ found, etag }: { found: Key; etag: string | null }) {
  const changed = useKeyChanged(found);
  const may = found.can.includes("change");
  const edit = useEdit<KeyValues>(
    { values: keyValues({ ...found }), etag },
    async (patch, tag) => {
      const params = {
        path: { tenant: found.tenant, key_id: found.id },
        header: tag === null ? {} : { "if-match": tag },
      };
      const answer = await tagged(
        api.PATCH("/api/v1/tenants/{tenant}/keys/{key_id}", { params, body: patch }),
      );
      await changed();
      return { values: keyValues({ ...answer.data }), etag: answer.etag };
    },
    keyValues,
  );
  return (
    <Card withBorder component="section" aria-label="What it may do">
      <Title order={2} size="h4" mb="sm">
        What it may do
      </Title>
      <ConflictNotice edit={edit} />
      <Stack>
        <KeyFields values={edit.values} set={edit.set} failure={edit.failure} disabled={!may} />
        {edit.failure !== null && <Failed error={edit.failure} />}
      </Stack>
      {may && <SaveBar edit={edit} />}
    </Card>
  );
}
