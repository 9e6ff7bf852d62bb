import { Alert, Anchor, Badge, Card, Group, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { api, heard } from "../api/client";
import { Moment } from "../parts/figures";
import { Read } from "../parts/states";
import { useAdapterChanged, useAdapterKey } from "./alias-data";
import { RolloutActions } from "./rollout-actions";
import { Comparison } from "./rollout-comparison";
import { RolloutEvents } from "./rollout-events";
import { StepsOnTheWay } from "./rollout-steps";
import { boundsOf, isActive, type Rollout, STATE_COLORS } from "./rollout-words";

const LOOK_MS = 2_000; // while the page is seen; control looks at its figures each second

export function RolloutPage() {
  const { tenant, name, rollout } = useParams({
    from: "/inside/tenants/$tenant/adapters/$name/rollouts/$rollout",
  });
  const read = useQuery({
    queryKey: [...useAdapterKey(), "rollout", rollout],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/adapters/{name}/rollouts/{rollout_id}", {
          params: { path: { tenant, name, rollout_id: rollout } },
        }),
      ),
    refetchInterval: ({ state }) => (state.data === undefined || isActive(state.data) ? LOOK_MS : false),
  });
  useEndTold(read.data);
  return (
    <Stack>
      <Anchor component={Link} to={`/tenants/${tenant}/adapters/${name}/rollouts`} size="sm">
        All rollouts
      </Anchor>
      <Read of={read} what="the rollout">
        {(found) => <Whole found={found} />}
      </Read>
    </Stack>
  );
}

/** One that ends by itself has moved the alias, which other pages show. */
function useEndTold(found: Rollout | undefined): void {
  const changed = useAdapterChanged();
  const wasActive = useRef(false);
  const active = found !== undefined && isActive(found);
  useEffect(() => {
    if (wasActive.current && !active) {
      void changed();
    }
    wasActive.current = active;
  });
}

function Whole({ found }: { found: Rollout }) {
  return (
    <Stack>
      <Group justify="space-between">
        <Group gap="sm">
          <Title order={2} size="h3">
            {`${found.adapter}@${found.alias}: version ${found.from_version} → ${found.to_version}`}
          </Title>
          <Badge color={STATE_COLORS[found.state]}>{found.state}</Badge>
        </Group>
        <RolloutActions rollout={found} />
      </Group>
      <Ended rollout={found} />
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        <Card withBorder>
          <Title order={3} size="h4" mb="sm">
            Steps
          </Title>
          <StepsOnTheWay rollout={found} />
          <GoesBack rollout={found} />
        </Card>
        <Card withBorder>
          <Title order={3} size="h4" mb="sm">
            Old and new
          </Title>
          <Comparison rollout={found} />
        </Card>
      </SimpleGrid>
      <Card withBorder>
        <Title order={3} size="h4" mb="sm">
          What happened
        </Title>
        <RolloutEvents events={found.events ?? []} />
      </Card>
    </Stack>
  );
}

const ENDS = {
  promoted: { color: "teal", title: "The alias is the new version's" },
  rolled_back: { color: "red", title: "It went back to the old version" },
  superseded: { color: "gray", title: "Somebody else moved the alias" },
} as const;

function Ended({ rollout }: { rollout: Rollout }) {
  if (rollout.state === "running" || rollout.state === "paused") {
    return null;
  }
  const { color, title } = ENDS[rollout.state];
  const reason = rollout.reason;
  return (
    <Alert color={color} title={title} role="status">
      <Text size="sm">
        {reason === null ? "After its last step, by itself." : `${reason.rule}: ${reason.message}`}
      </Text>
      <Text size="sm" mt={4}>
        In step {rollout.step}, <Moment at={rollout.ended_at} />
      </Text>
    </Alert>
  );
}

function GoesBack({ rollout }: { rollout: Rollout }) {
  const bounds = boundsOf(rollout.rollback_on);
  return (
    <Text size="sm" c="dimmed" mt="md">
      {bounds.length === 0
        ? "Nothing takes it back by itself."
        : `It goes back by itself, at once, when ${bounds.join("; when ")}.`}
    </Text>
  );
}
