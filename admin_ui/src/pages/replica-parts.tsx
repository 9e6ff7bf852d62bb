import { Badge, Button, Group, Progress, Text } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { Confirm } from "../parts/confirm";
import { countText } from "../parts/figures";

export type Replica = Schemas["ReplicaOut"];

const HEALTH = { ready: "teal", down: "red", unfit: "orange", unknown: "gray" } as const;
const BREAKERS = {
  closed: { color: "teal", says: "closed" },
  open: { color: "red", says: "open: nothing is sent" },
  half_open: { color: "yellow", says: "half open: one request tries" },
} as const;

export function Health({ replica }: { replica: Replica }) {
  return (
    <Group gap={4}>
      <Badge color={HEALTH[replica.health]}>{replica.health}</Badge>
      {replica.reason !== null && <Text size="xs">{replica.reason}</Text>}
    </Group>
  );
}

export function DrainState({ replica }: { replica: Replica }) {
  return <Badge color={replica.state === "up" ? "teal" : "orange"}>{replica.state}</Badge>;
}

export function BreakerMark({ replica }: { replica: Replica }) {
  if (replica.breaker === null) {
    return <Text size="sm">unknown</Text>;
  }
  const { color, says } = BREAKERS[replica.breaker];
  return <Badge color={color}>{says}</Badge>;
}

/** The weights that it serves with, by the first digits that tell them apart. */
export function Weights({ digest }: { digest: string | null }) {
  return digest === null ? (
    <Text size="sm" c="dimmed">
      not said
    </Text>
  ) : (
    <code className="mono" title={digest}>
      {digest.slice(0, 12)}
    </code>
  );
}

/** How much of something is in use; both numbers, and a bar. */
export function Used({ what, used, all }: { what: string; used: number | null; all: number | null }) {
  if (used === null || all === null || all === 0) {
    return (
      <Text size="sm" c={used === null ? "dimmed" : undefined} className="figures">
        {used === null ? "not said" : countText(used)}
      </Text>
    );
  }
  const share = Math.min(100, (used / all) * 100);
  const text = `${countText(used)} of ${countText(all)}`;
  return (
    <div>
      <Text size="sm" className="figures">
        {text}
      </Text>
      <Progress
        value={share}
        size="sm"
        color={share > 90 ? "red" : "indigo"}
        aria-label={`${what}: ${text}`}
        miw={90}
      />
    </div>
  );
}

export function DrainOrResume({ replica }: { replica: Replica }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState<"drain" | "resume" | null>(null);
  const change = async (state: "up" | "draining") => {
    const params = { path: { replica: replica.id } };
    await heard(api.PATCH("/api/v1/replicas/{replica}", { params, body: { state } }));
    await client.invalidateQueries({ queryKey: ["replicas"] });
  };
  return (
    <>
      {replica.can.includes("drain") && (
        <Button size="xs" variant="default" onClick={() => setAsking("drain")}>
          Drain…
        </Button>
      )}
      {replica.can.includes("resume") && (
        <Button size="xs" variant="default" onClick={() => setAsking("resume")}>
          Take back…
        </Button>
      )}
      {asking === "drain" && (
        <Confirm
          title="Drain this replica"
          effect={`${replica.url}: nothing new goes there; its ${replica.in_flight} requests end there.`}
          action="Drain"
          onConfirm={() => change("draining")}
          onClose={() => setAsking(null)}
        />
      )}
      {asking === "resume" && (
        <Confirm
          title="Take this replica back"
          effect={`${replica.url}: requests go there again.`}
          action="Take back"
          dangerous={false}
          onConfirm={() => change("up")}
          onClose={() => setAsking(null)}
        />
      )}
    </>
  );
}
