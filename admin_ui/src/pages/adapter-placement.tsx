import { Badge, Button, Card, Group, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { of } from "../live/fresh";
import { useLook } from "../live/live";
import { Moment } from "../parts/figures";
import { Read } from "../parts/states";
import { PlaceAdapter } from "./placement-edit";
import { Row } from "./tenant-overview";

type Placement = Schemas["PlacementOut"];

const LOOK_MS = 5_000;
const STATES: Record<Placement["state"], { color: string; says: string }> = {
  met: { color: "teal", says: "as wanted" },
  waiting: { color: "yellow", says: "on its way" },
  over_quota: { color: "red", says: "over the tenant's quota: not applied" },
  no_version: { color: "orange", says: "the version that is meant may not serve" },
  unplaced: { color: "gray", says: "left to traffic" },
};

/** Where one adapter is wanted, and beside it where it is: for the adapter's own page. */
export function AdapterPlacement({ tenant, adapter }: { tenant: string; adapter: string }) {
  const [placing, setPlacing] = useState(false);
  const look = useLook(LOOK_MS);
  const read = useQuery({
    queryKey: ["tenant", tenant, "adapter", adapter, "placement"],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/adapters/{name}/placement", {
          params: { path: { tenant, name: adapter } },
        }),
      ),
    refetchInterval: look,
    meta: of("placement", "alias", "adapter"),
  });
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Placement
      </Title>
      <Read of={read} what="the placement">
        {(found) => (
          <>
            <About found={found} />
            {found.can.includes("place") && (
              <Group>
                <Button variant="default" onClick={() => setPlacing(true)}>
                  {found.replicas > 0 ? "Change placement…" : "Have it lie ready…"}
                </Button>
              </Group>
            )}
          </>
        )}
      </Read>
      {placing && <PlaceAdapter tenant={tenant} adapter={adapter} onClose={() => setPlacing(false)} />}
    </Card>
  );
}

function About({ found }: { found: Placement }) {
  const state = STATES[found.state];
  return (
    <Table variant="vertical" layout="auto" mb="md">
      <Table.Tbody>
        <Row name="State">
          <Badge color={state.color}>{state.says}</Badge>
        </Row>
        {found.replicas > 0 && (
          <Row name="Wanted">
            {found.tier === "device" ? "in a slot" : "in memory"} on {found.replicas} replicas,{" "}
            {found.pinned ? "pinned" : "brought back when pushed out"}
          </Row>
        )}
        <Row name="Is">
          <Text size="sm" className="figures">
            in a slot on {found.held.device}, in memory on {found.held.host}
          </Text>
        </Row>
        <Row name="Version">
          {found.serves === null ? "none may serve" : found.serves}
          {found.replicas > 0 && found.version === null && ", whichever live is"}
        </Row>
        {found.updated_at !== null && (
          <Row name="Changed">
            <Moment at={found.updated_at} />
          </Row>
        )}
      </Table.Tbody>
    </Table>
  );
}
