import { Card, Progress, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { api, heard, type Schemas, tagged } from "../api/client";
import { ConflictNotice, SaveBar, type Saved, useEdit } from "../parts/edits";
import { countText, Moment, Mono } from "../parts/figures";
import { NumberField } from "../parts/number-field";
import { Empty, Failed, Read } from "../parts/states";
import { type Tenant, useTenant, useTenantId } from "./tenant-data";
import { TenantTraffic } from "./tenant-traffic";

const LOOK_MS = 5_000;

export function TenantOverview() {
  const tenant = useTenant();
  if (tenant.data === undefined) {
    return null;
  }
  return (
    <Stack>
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        <About tenant={tenant.data} />
        {tenant.data.can.includes("read_limits") && <Use />}
        {tenant.data.can.includes("change") && <Weight />}
      </SimpleGrid>
      {tenant.data.can.includes("read_requests") && <TenantTraffic />}
    </Stack>
  );
}

function About({ tenant }: { tenant: Tenant }) {
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        About
      </Title>
      <Table variant="vertical" layout="auto">
        <Table.Tbody>
          <Row name="Id">
            <Mono>{tenant.id}</Mono>
          </Row>
          <Row name="Made">
            <Moment at={tenant.created_at} />
          </Row>
          <Row name="Changed">
            <Moment at={tenant.updated_at} />
          </Row>
          {tenant.suspended_for !== null && (
            <Row name="Suspended for">{tenant.suspended_for || "no reason given"}</Row>
          )}
        </Table.Tbody>
      </Table>
    </Card>
  );
}

export function Row({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <Table.Tr>
      <Table.Th>{name}</Table.Th>
      <Table.Td>{children}</Table.Td>
    </Table.Tr>
  );
}

type LimitNow = Schemas["LimitNow"];
const UNITS: Record<string, string> = {
  requests_per_minute: "requests a minute",
  tokens_per_minute: "tokens a minute",
  input_tokens_per_minute: "input tokens a minute",
  output_tokens_per_minute: "output tokens a minute",
  max_parallel: "requests at a time",
  budget_day: "today's budget",
  budget_month: "this month's budget",
};

function Use() {
  const id = useTenantId();
  const now = useQuery({
    queryKey: ["tenant", id, "limits", "now"],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/limits/now", { params: { path: { tenant: id } } })),
    refetchInterval: LOOK_MS,
  });
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Use against its limits
      </Title>
      <Read of={now} what="the use">
        {(found) =>
          found.data.length === 0 ? (
            <Empty title="No limit is set">
              <Text size="sm">It is held to what others leave.</Text>
            </Empty>
          ) : (
            <Stack gap="sm">
              {found.data.map((limit) => (
                <Bar key={limit.limit_id} limit={limit} />
              ))}
            </Stack>
          )
        }
      </Read>
    </Card>
  );
}

function Bar({ limit }: { limit: LimitNow }) {
  const most = Number(limit.limit);
  const used = most - Number(limit.remaining);
  const share = most > 0 ? Math.min(100, (used / most) * 100) : 0;
  const name = UNITS[limit.limit_id.split(".")[1] ?? ""] ?? limit.limit_id;
  const text =
    typeof limit.limit === "string"
      ? `${limit.remaining} of ${limit.limit} left`
      : `${countText(used)} of ${countText(most)}`;
  return (
    <div>
      <Text size="sm" className="figures">
        {name}: {text}
      </Text>
      <Progress value={share} color={share > 90 ? "red" : "indigo"} aria-label={`${name}: ${text}`} />
    </div>
  );
}

interface WeightFields extends Record<string, unknown> {
  share_weight: number;
}

const pick = (found: Record<string, unknown>): WeightFields => ({ share_weight: Number(found.share_weight) });

function Weight() {
  const id = useTenantId();
  const read = useQuery({
    queryKey: ["tenant", id, "edit"],
    queryFn: async (): Promise<Saved<WeightFields>> => {
      const { data, etag } = await tagged(
        api.GET("/api/v1/tenants/{tenant}", { params: { path: { tenant: id } } }),
      );
      return { values: pick({ ...data }), etag };
    },
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Share of the queue
      </Title>
      <Read of={read} what="the share">
        {(saved) => <WeightForm saved={saved} />}
      </Read>
    </Card>
  );
}

function WeightForm({ saved }: { saved: Saved<WeightFields> }) {
  const id = useTenantId();
  const client = useQueryClient();
  const edit = useEdit(
    saved,
    async (patch, etag) => {
      const header = etag === null ? {} : { "if-match": etag };
      const params = { path: { tenant: id }, header };
      const answer = await tagged(api.PATCH("/api/v1/tenants/{tenant}", { params, body: patch }));
      client.setQueryData(["tenant", id], answer.data);
      await client.invalidateQueries({ queryKey: ["tenants"] });
      return { values: pick({ ...answer.data }), etag: answer.etag };
    },
    pick,
  );
  return (
    <>
      <ConflictNotice edit={edit} />
      <NumberField
        label="Weight"
        description="1 to 100: a tenant of weight 2 gets twice what one of weight 1 does, while both wait"
        min={1}
        max={100}
        allowDecimal={false}
        value={edit.values.share_weight}
        onChange={(value) => value !== null && edit.set("share_weight", value)}
      />
      {edit.failure !== null && <Failed error={edit.failure} />}
      <SaveBar edit={edit} />
    </>
  );
}
