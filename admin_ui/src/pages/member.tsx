import {
  Anchor,
  Button,
  Card,
  Group,
  Modal,
  PasswordInput,
  SimpleGrid,
  Stack,
  Table,
  Text,
  Title,
} from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas, tagged } from "../api/client";
import { of } from "../live/fresh";
import { leavingOf } from "../live/leaving";
import { Confirm } from "../parts/confirm";
import { ConflictNotice, SaveBar, useEdit, useUnsaved } from "../parts/edits";
import { countText, Moment } from "../parts/figures";
import { useOnce } from "../parts/once";
import { Failed, Read } from "../parts/states";
import { MemberTokens } from "./member-tokens";
import { RoleField, type RoleName } from "./members";
import { Row } from "./tenant-overview";

type Member = Schemas["MemberOut"];
const LEAST = 12;

export function MemberPage() {
  const { tenant, member } = useParams({ from: "/inside/tenants/$tenant/members/$member" });
  const read = useQuery({
    queryKey: ["tenant", tenant, "member", member],
    queryFn: () =>
      tagged(
        api.GET("/api/v1/tenants/{tenant}/members/{member_id}", {
          params: { path: { tenant, member_id: member } },
        }),
      ),
  });
  return (
    <Stack>
      <Anchor component={Link} to={`/tenants/${tenant}/members`} size="sm">
        All members
      </Anchor>
      <Read of={read} what="the member">
        {({ data, etag }) => (
          <>
            <SimpleGrid cols={{ base: 1, md: 2 }}>
              <About found={data} />
              <ItsRole key={data.id} found={data} etag={etag} />
            </SimpleGrid>
            {data.can.includes("list_tokens") && <MemberTokens found={data} />}
          </>
        )}
      </Read>
    </Stack>
  );
}

function About({ found }: { found: Member }) {
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm" style={{ overflowWrap: "anywhere" }}>
        {found.email}
      </Title>
      <Table variant="vertical" layout="auto" mb="md">
        <Table.Tbody>
          <Row name="Added">
            <Moment at={found.created_at} />
          </Row>
          <Row name="Changed">
            <Moment at={found.updated_at} />
          </Row>
        </Table.Tbody>
      </Table>
      <Actions found={found} />
    </Card>
  );
}

function Actions({ found }: { found: Member }) {
  const [asking, setAsking] = useState<"password" | "remove" | null>(null);
  const close = () => setAsking(null);
  return (
    <Group>
      {found.can.includes("set_password") && (
        <Button variant="default" onClick={() => setAsking("password")}>
          Set password…
        </Button>
      )}
      {found.can.includes("remove") && (
        <Button color="red" variant="light" onClick={() => setAsking("remove")}>
          Remove…
        </Button>
      )}
      {asking === "password" && <SetPassword found={found} onClose={close} />}
      {asking === "remove" && <Remove found={found} onClose={close} />}
    </Group>
  );
}

function Remove({ found, onClose }: { found: Member; onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const params = { path: { tenant: found.tenant, member_id: found.id } };
  const tokens = useQuery({
    queryKey: ["tenant", found.tenant, "member", found.id, "tokens", "all"],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/members/{member_id}/tokens", {
          params: { ...params, query: { limit: 200 } },
        }),
      ),
  });
  const live = tokens.data?.data.filter((token) => token.can.includes("revoke")).length;
  const many = `${tokens.data?.has_more ? "at least " : ""}${countText(live ?? 0, live === 1 ? "token" : "tokens")}`;
  return (
    <Confirm
      title={`Remove ${found.email}`}
      effect={
        live === undefined
          ? "Counting its tokens…"
          : `Its sessions and its ${many} may do nothing for this tenant any more, from the next request on. An account that is a member of no other tenant ends with it. Keys that it made stay.`
      }
      ready={live !== undefined}
      unknown={
        live !== undefined || tokens.error === null
          ? undefined
          : { error: tokens.error, onRetry: () => void tokens.refetch() }
      }
      typed={found.email}
      action="Remove"
      onConfirm={async () => {
        await leavingOf(found.id, async () => {
          await heard(api.DELETE("/api/v1/tenants/{tenant}/members/{member_id}", { params }));
          await navigate({ to: `/tenants/${found.tenant}/members` });
        });
        await client.invalidateQueries({ queryKey: ["tenant", found.tenant, "members"] });
      }}
      onClose={onClose}
    />
  );
}

interface RoleValues extends Record<string, unknown> {
  role: RoleName;
}

const roleValues = (found: Record<string, unknown>): RoleValues => ({ role: found.role as RoleName });

function ItsRole({ found, etag }: { found: Member; etag: string | null }) {
  const client = useQueryClient();
  const may = found.can.includes("change");
  const roles = useQuery({
    queryKey: ["tenant", found.tenant, "members", "roles"],
    queryFn: () => {
      const params = { path: { tenant: found.tenant }, query: { limit: 1 } };
      return heard(api.GET("/api/v1/tenants/{tenant}/members", { params }));
    },
    staleTime: Number.POSITIVE_INFINITY,
    meta: of(),
  });
  const edit = useEdit<RoleValues>(
    { values: roleValues({ ...found }), etag },
    async (patch, tag) => {
      const params = {
        path: { tenant: found.tenant, member_id: found.id },
        header: tag === null ? {} : { "if-match": tag },
      };
      const body = { role: patch.role ?? found.role } as Schemas["MemberPatch"];
      const answer = await tagged(
        api.PATCH("/api/v1/tenants/{tenant}/members/{member_id}", { params, body }),
      );
      await client.invalidateQueries({ queryKey: ["tenant", found.tenant, "member", found.id] });
      await client.invalidateQueries({ queryKey: ["tenant", found.tenant, "members"] });
      return { values: roleValues({ ...answer.data }), etag: answer.etag };
    },
    roleValues,
  );
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        What it may do
      </Title>
      <ConflictNotice edit={edit} />
      <RoleField
        roles={roles.data?.roles ?? []}
        value={edit.values.role}
        onChange={(role) => edit.set("role", role)}
        disabled={!may}
      />
      <Text size="sm" c="dimmed" mt="xs">
        Holds for the next request, of its tokens too.
      </Text>
      {edit.failure !== null && <Failed error={edit.failure} />}
      {may && <SaveBar edit={edit} />}
    </Card>
  );
}

function SetPassword({ found, onClose }: { found: Member; onClose: () => void }) {
  const [password, setPassword] = useState("");
  const [tried, setTried] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const once = useOnce();
  const short = password.length < LEAST;
  useUnsaved(password !== "", true);
  const send = async () => {
    setTried(true);
    if (short) {
      return;
    }
    setBusy(true);
    setError(null);
    try {
      const params = { path: { tenant: found.tenant, member_id: found.id } };
      await heard(
        api.PUT("/api/v1/tenants/{tenant}/members/{member_id}/password", { params, body: { password } }),
      );
      notifications.show({ message: `The password of ${found.email} is set. Its sessions have ended.` });
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(send);
  };
  return (
    <Modal opened onClose={onClose} title="Set password">
      <form onSubmit={submit}>
        <Stack>
          <Text size="sm">
            It opens all tenants of {found.email}, and ends its sessions of the password before.
          </Text>
          <PasswordInput
            label="New password"
            description={`At least ${LEAST} characters`}
            autoComplete="new-password"
            data-autofocus
            error={tried && short ? `It has ${password.length} of at least ${LEAST} characters.` : null}
            value={password}
            onChange={(event) => setPassword(event.currentTarget.value)}
          />
          {error !== null && <Failed error={error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={busy}>
              Set password
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
