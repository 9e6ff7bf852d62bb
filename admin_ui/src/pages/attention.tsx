import { Alert, Anchor, Badge, Card, Group, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { durationText } from "../parts/duration";
import { countText, Moment } from "../parts/figures";
import { Read } from "../parts/states";
import { Figure } from "../parts/traffic";

type Finding = Schemas["Finding"];
type Queue = Schemas["QueueNow"];

const LOOK_MS = 5_000;
const COLOURS = { critical: "red", warning: "orange", notice: "gray" } as const;

export function NeedsAttention() {
  const found = useQuery({
    queryKey: ["attention"],
    queryFn: () => heard(api.GET("/api/v1/attention")),
    refetchInterval: LOOK_MS,
  });
  return (
    <Read of={found} what="what needs attention">
      {({ data, queue }) => (
        <Stack gap="sm">
          <Card withBorder p="sm" component="section" aria-label="Needs attention">
            <Title order={2} size="h5" mb="xs">
              Needs attention first
            </Title>
            {data.length === 0 ? (
              <Text size="sm">
                Nothing does: replicas, adapters, usage, budgets, store and queue are well.
              </Text>
            ) : (
              <Stack
                gap={6}
                component="ul"
                m={0}
                p={0}
                mah={260}
                style={{ overflow: "auto" }}
                tabIndex={0}
                aria-label="What was found"
              >
                {data.map((each) => (
                  <One key={JSON.stringify(each)} finding={each} />
                ))}
              </Stack>
            )}
          </Card>
          <QueueNow queue={queue} />
        </Stack>
      )}
    </Read>
  );
}

function One({ finding }: { finding: Finding }) {
  const { to, search } = placeOf(finding);
  return (
    <Group component="li" gap="xs" wrap="nowrap" align="baseline" style={{ listStyle: "none" }}>
      <Badge color={COLOURS[finding.severity]}>{finding.severity}</Badge>
      <Text size="sm" style={{ flex: 1 }}>
        <Anchor component={Link} to={to} search={search as never}>
          {finding.message}
        </Anchor>
        {finding.since != null && (
          <Text span c="dimmed">
            {" "}
            <Moment at={finding.since} />
          </Text>
        )}
        {finding.tenant_name != null && !finding.kind.startsWith("budget") && (
          <Text span c="dimmed">
            {" "}
            {finding.tenant_name}
          </Text>
        )}
      </Text>
    </Group>
  );
}

/** Where one does something about it. */
function placeOf(finding: Finding): { to: string; search?: { by: "adapter" } } {
  return finding.kind === "requests_failing"
    ? { to: "/overview", search: { by: "adapter" } }
    : { to: pathOf(finding, finding.kind) };
}

function pathOf(
  { tenant, adapter, rollout, version, key_id: key }: Finding,
  kind: Exclude<Finding["kind"], "requests_failing">,
): string {
  const root = `/tenants/${tenant}`;
  switch (kind) {
    case "no_replica":
    case "replica_down":
    case "replica_unfit":
    case "replica_breaker_open":
    case "replica_draining":
    case "queue_growing":
    case "usage_behind":
    case "usage_unknown":
      return "/replicas";
    case "budget_used":
    case "budget_nearly_used":
      return key == null ? `${root}/limits` : `${root}/keys/${key}`;
    case "rollout_rolled_back":
    case "rollout_paused":
      return `${root}/adapters/${adapter}/rollouts/${rollout}`;
    case "adapter_rejected":
    case "proof_late":
      return `${root}/adapters/${adapter}/versions/${version}`;
    case "usage_unpriced":
      return "/billing/prices";
    case "store_unreachable":
    case "store_lost_versions":
    case "store_check_failed":
      return "/settings/store";
  }
}

/** Now, whatever time the figures below are of. */
function QueueNow({ queue }: { queue: Queue }) {
  const none = queue.places === 0;
  return (
    <Stack gap="xs" component="section" aria-label="The queue now">
      {none && <Alert color="red" p="xs" title="There is no place at any replica: everything waits." />}
      <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="xs">
        <Figure
          name="Waiting now"
          value={countText(queue.waiting, "requests")}
          more={countText(queue.waiting_tokens, "tokens")}
        />
        <Figure
          name="Running now"
          value={countText(queue.running, "requests")}
          more={`of ${countText(queue.places, "places")}`}
        />
        <Figure
          name="The last in line waits"
          value={queue.wait_s === null ? "unknown" : durationText(queue.wait_s * 1000)}
        />
        <Figure
          name="Pace while some wait"
          value={queue.tokens_per_s === null ? "unknown" : countText(queue.tokens_per_s, "tokens/s")}
        />
      </SimpleGrid>
    </Stack>
  );
}
