import { Badge, Card, SimpleGrid, Table, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, heard, tagged } from "../api/client";
import { ConflictNotice, SaveBar, type Saved, useEdit } from "../parts/edits";
import { Count, Mono } from "../parts/figures";
import { LimitFields, type LimitValues, limitValues } from "../parts/limit-fields";
import { Failed, Read } from "../parts/states";
import { useAdapter, useAdapterPath } from "./adapter-data";
import { Row } from "./tenant-overview";

const LOOK_MS = 5_000;

export function AdapterLimits() {
  const adapter = useAdapter().data;
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }}>
      <Limits may={adapter?.can.includes("change_limits") ?? false} />
      {adapter?.can.includes("read_placement") && <Placed />}
    </SimpleGrid>
  );
}

function Limits({ may }: { may: boolean }) {
  const path = useAdapterPath();
  const read = useQuery({
    queryKey: ["tenant", path.tenant, "adapter", path.name, "limits"],
    queryFn: async (): Promise<Saved<LimitValues>> => {
      const { data, etag } = await tagged(
        api.GET("/api/v1/tenants/{tenant}/adapters/{name}/limits", { params: { path } }),
      );
      return { values: limitValues({ ...data }), etag };
    },
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Limits of this adapter, in whichever version
      </Title>
      <Read of={read} what="the limits">
        {(saved) => <LimitsForm saved={saved} may={may} />}
      </Read>
    </Card>
  );
}

function LimitsForm({ saved, may }: { saved: Saved<LimitValues>; may: boolean }) {
  const path = useAdapterPath();
  const edit = useEdit(
    saved,
    async (patch, etag) => {
      const params = { path, header: etag === null ? {} : { "if-match": etag } };
      const { budget_day, budget_month, ...buckets } = patch;
      const answer = await tagged(
        api.PATCH("/api/v1/tenants/{tenant}/adapters/{name}/limits", { params, body: buckets }),
      );
      return { values: limitValues({ ...answer.data }), etag: answer.etag };
    },
    limitValues,
  );
  return (
    <>
      <ConflictNotice edit={edit} />
      <LimitFields edit={edit} disabled={!may} budgets={false} />
      {edit.failure !== null && <Failed error={edit.failure} />}
      {may && <SaveBar edit={edit} />}
    </>
  );
}

const STATES: Record<string, string> = {
  met: "as wanted",
  waiting: "replicas follow within seconds",
  over_quota: "not applied: the tenant's quota is used up",
  no_version: "what it names may not serve now",
  unplaced: "left to traffic",
};

function Placed() {
  const path = useAdapterPath();
  const read = useQuery({
    queryKey: ["tenant", path.tenant, "adapter", path.name, "placement"],
    queryFn: () => heard(api.GET("/api/v1/tenants/{tenant}/adapters/{name}/placement", { params: { path } })),
    refetchInterval: LOOK_MS,
  });
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Where it lies now
      </Title>
      <Read of={read} what="the placement">
        {(placed) => (
          <Table variant="vertical" layout="auto">
            <Table.Tbody>
              <Row name="On a device">
                <Count value={placed.held.device} unit="replicas" />
              </Row>
              <Row name="In memory">
                <Count value={placed.held.host} unit="replicas" />
              </Row>
              <Row name="Version meant">
                {placed.serves === null ? "none" : <Mono>{`${path.name}@${placed.serves}`}</Mono>}
              </Row>
              <Row name="Wanted">
                {placed.replicas === 0 ? (
                  "by requests only"
                ) : (
                  <>
                    on <Count value={placed.replicas} unit="replicas" />, {placed.tier}
                    {placed.pinned ? ", pinned" : ""}
                  </>
                )}
              </Row>
              <Row name="State">
                <Badge
                  color={placed.state === "over_quota" || placed.state === "no_version" ? "orange" : "teal"}
                >
                  {placed.state}
                </Badge>{" "}
                {STATES[placed.state]}
              </Row>
            </Table.Tbody>
          </Table>
        )}
      </Read>
    </Card>
  );
}
