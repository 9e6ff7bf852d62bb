import { Anchor, Card, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { durationText } from "../parts/duration";
import { countText, Moment } from "../parts/figures";
import { Figure } from "../parts/traffic";
import type { Story } from "./request";

/** Which limit said no, in numbers, and what can be done. Nothing for what was answered. */
export function Refusal({ story, tenant }: { story: Story; tenant: string }) {
  const { refusal } = story;
  if (refusal === null) {
    return null;
  }
  const isMoney = refusal.by?.includes(".budget_") ?? false;
  const amount = (value: number | null) => (value === null ? "–" : amountText(refusal.by, value));
  return (
    <Card withBorder p="sm" component="section" aria-label="What refused it">
      <Title order={3} size="h5" mb="sm">
        What refused it
      </Title>
      {/* Money is in the explanation: as a number here it would not be exact. */}
      <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="xs">
        <Figure name="By" value={refusal.by ?? refusal.code ?? "a fault"} more={refusal.param} />
        {!isMoney && (
          <>
            <Figure name="Limit" value={amount(refusal.limit)} />
            <Figure name="Needed" value={amount(refusal.needed)} />
            <Figure name="Available" value={amount(refusal.available)} />
          </>
        )}
      </SimpleGrid>
      <Stack gap={4} mt="sm">
        {refusal.retry_at !== null && (
          <Text size="sm">
            It would have been let in after {durationText(refusal.retry_after_ms)}, at{" "}
            <Moment at={refusal.retry_at} />.
          </Text>
        )}
        <Text size="sm">{next(story, tenant)}</Text>
      </Stack>
    </Card>
  );
}

/** Times of the queue are milliseconds, all else is counted. */
function amountText(by: string | null, value: number): string {
  return by === "queue.forecast" || by === "queue.deadline" ? durationText(value) : countText(value);
}

function next(story: Story, tenant: string): ReactNode {
  const { by, code } = story.refusal ?? {};
  const owner = by?.split(".")[0];
  if (owner === "key") {
    return (
      <>
        Send less at a time, wait until then, or raise{" "}
        <To to={`/tenants/${tenant}/keys/${story.request.key_id}`}>the limits of this key</To>.
      </>
    );
  }
  if (owner === "tenant") {
    return (
      <>
        Send less at a time, wait until then, or have{" "}
        <To to={`/tenants/${tenant}/limits`}>the limits of the tenant</To> raised.
      </>
    );
  }
  if (owner === "adapter") {
    return (
      <>
        This adapter has a limit of its own:{" "}
        <To to={`/tenants/${tenant}/adapters/${story.request.adapter}`}>its page</To> says which.
      </>
    );
  }
  if (owner === "queue" || code === "no_replica") {
    return (
      <>
        All places were taken: try again then, give the client more time (its deadline bounds the wait), or
        add replicas.
      </>
    );
  }
  if (code === "model_not_found") {
    return "Compare the name of the model with the list of adapters, and with the models that its key may use.";
  }
  return story.request.outcome === "failed"
    ? "It was our fault, not the client's: sent again, it may well succeed. Nothing was billed unless it says so."
    : "The client has to send another request: this one would be refused again.";
}

function To({ to, children }: { to: string; children: ReactNode }) {
  return (
    <Anchor component={Link} to={to}>
      {children}
    </Anchor>
  );
}
