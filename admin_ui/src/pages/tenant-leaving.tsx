import { Badge, Button, Card, Group, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { Confirm } from "../parts/confirm";
import { Count, countText, Moment, Mono } from "../parts/figures";
import { NumberField } from "../parts/number-field";
import { Scrolls } from "../parts/scrolls";
import { Read } from "../parts/states";
import type { Tenant } from "./tenant-data";
import { Row } from "./tenant-overview";

type Leaving = Schemas["OffboardingOut"];
const LOOK_MS = 10_000; // while the page is seen
const COUNTED = 200;

export function TenantLeaving({ tenant }: { tenant: Tenant }) {
  const [asking, setAsking] = useState(false);
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Leaving
      </Title>
      {tenant.can.includes("read_offboarding") && <HowFar tenant={tenant} />}
      {tenant.can.includes("offboard") && (
        <Stack gap="sm" align="start">
          <Text size="sm">
            Off-boarding suspends the tenant now and purges it after a grace, in which it can be undone. What
            the law has kept stays: ledger, statements, audit log.
          </Text>
          <Button color="red" variant="light" onClick={() => setAsking(true)}>
            Off-board…
          </Button>
          {asking && <Offboard tenant={tenant} onClose={() => setAsking(false)} />}
        </Stack>
      )}
    </Card>
  );
}

function Offboard({ tenant, onClose }: { tenant: Tenant; onClose: () => void }) {
  const client = useQueryClient();
  const [graceH, setGraceH] = useState<number | null>(null);
  const params = { path: { tenant: tenant.id } };
  const stakes = useQuery({
    queryKey: ["tenant", tenant.id, "stakes"],
    queryFn: async () => {
      const keys = api.GET("/api/v1/tenants/{tenant}/keys", {
        params: { ...params, query: { state: "live", limit: COUNTED } },
      });
      const adapters = api.GET("/api/v1/tenants/{tenant}/adapters", {
        params: { ...params, query: { limit: COUNTED } },
      });
      const [live, all] = await Promise.all([heard(keys), heard(adapters)]);
      return { keys: counted(live, "live key"), adapters: counted(all, "adapter") };
    },
    staleTime: 0,
  });
  const found = stakes.data;
  return (
    <Confirm
      title={`Off-board ${tenant.name}`}
      effect={
        found === undefined
          ? "Counting what it ends…"
          : `From the next request on, all requests of ${found.keys} are refused. When the grace is over, ${found.adapters} with all their versions, all keys, members and webhooks are purged for good, in the store and on all replicas.`
      }
      ready={found !== undefined}
      unknown={
        found !== undefined || stakes.error === null
          ? undefined
          : { error: stakes.error, onRetry: () => void stakes.refetch() }
      }
      typed={tenant.name}
      action="Off-board"
      field={{ label: "Reason, for the audit log" }}
      onConfirm={async (reason) => {
        const body = {
          confirm: tenant.name,
          reason,
          grace_h: graceH,
        };
        await heard(api.POST("/api/v1/tenants/{tenant}/offboarding", { params, body }));
        await client.invalidateQueries({ queryKey: ["tenant", tenant.id] });
        await client.invalidateQueries({ queryKey: ["tenants"] });
      }}
      onClose={onClose}
    >
      <NumberField
        label="Grace"
        description="Until the purge begins; empty for what this installation is set to"
        suffix={"\u00a0h"}
        min={1}
        max={2_160}
        allowDecimal={false}
        value={graceH}
        onChange={setGraceH}
      />
    </Confirm>
  );
}

function counted(page: { data: unknown[]; has_more: boolean }, one: string): string {
  const count = countText(page.data.length, page.data.length === 1 ? one : `${one}s`);
  return page.has_more ? `more than ${count}` : count;
}

function HowFar({ tenant }: { tenant: Tenant }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  const params = { path: { tenant: tenant.id } };
  const read = useQuery({
    queryKey: ["tenant", tenant.id, "offboarding"],
    queryFn: () => heard(api.GET("/api/v1/tenants/{tenant}/offboarding", { params })),
    refetchInterval: ({ state }) => (state.data?.ended_at ? false : LOOK_MS),
  });
  return (
    <Read of={read} what="the off-boarding">
      {(found) => (
        <Stack gap="sm">
          <Facts found={found} />
          {found.steps.length > 0 && <Steps found={found} />}
          {tenant.can.includes("undo_offboarding") && found.state === "waiting" && (
            <Group>
              <Button onClick={() => setAsking(true)}>Undo…</Button>
            </Group>
          )}
          {asking && (
            <Confirm
              title={`Keep ${tenant.name}`}
              effect="It is as it was before, and its keys are let in again. Nothing was purged yet."
              action="Undo"
              dangerous={false}
              onConfirm={async () => {
                const kept = await heard(api.DELETE("/api/v1/tenants/{tenant}/offboarding", { params }));
                client.setQueryData(["tenant", tenant.id], kept);
                await client.invalidateQueries({ queryKey: ["tenants"] });
              }}
              onClose={() => setAsking(false)}
            />
          )}
        </Stack>
      )}
    </Read>
  );
}

const STATES = { waiting: "orange", purging: "red", purged: "gray", undone: "teal" } as const;

function Facts({ found }: { found: Leaving }) {
  return (
    <Table variant="vertical" layout="auto">
      <Table.Tbody>
        <Row name="State">
          <Badge color={STATES[found.state]}>{found.state}</Badge>
        </Row>
        <Row name="Asked">
          <Moment at={found.requested_at} />
        </Row>
        <Row name="By">
          <Mono>{found.requested_by}</Mono>
        </Row>
        <Row name="Reason">{found.reason || "none given"}</Row>
        <Row name="Purge begins">
          <Moment at={found.purge_after} />
        </Row>
        {found.ended_at !== null && (
          <Row name="Ended">
            <Moment at={found.ended_at} />
          </Row>
        )}
        {typeof found.proof?.digest === "string" && (
          <Row name="Proof">
            <Mono>{found.proof.digest}</Mono>
          </Row>
        )}
      </Table.Tbody>
    </Table>
  );
}

function Steps({ found }: { found: Leaving }) {
  return (
    <Scrolls minWidth={320} what="Steps of the purge">
      <Table>
        <caption className="off-screen">Steps of the purge</caption>
        <Table.Thead>
          <Table.Tr>
            <Table.Th scope="col">Kind</Table.Th>
            <Table.Th scope="col" ta="end">
              Found
            </Table.Th>
            <Table.Th scope="col">Done</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {found.steps.map((step) => (
            <Table.Tr key={step.kind}>
              <Table.Td>{step.kind}</Table.Td>
              <Table.Td ta="end">
                <Count value={step.found} />
              </Table.Td>
              <Table.Td>
                <Moment at={step.done_at} absent="not yet" />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Scrolls>
  );
}
