import { Alert, Anchor, Badge, Button, Group, Paper, Stack, Text } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { Clock, Count, countText, Mono } from "../parts/figures";
import type { Answer } from "./conversation";
import { Billed } from "./cost";
import { Refusal } from "./stream";

const STATES = {
  waiting: ["gray", "waiting"],
  streaming: ["indigo", "answering"],
  done: ["teal", "answered"],
  stopped: ["orange", "stopped"],
  failed: ["red", "failed"],
} as const;

interface Props {
  tenant: string;
  answer: Answer;
  onAgain: () => void;
}

export function AnswerView({ tenant, answer, onAgain }: Props) {
  const { served, state, failure } = answer;
  const ended = state !== "waiting" && state !== "streaming";
  const [color, said] = STATES[state];
  return (
    <Paper withBorder p="sm" component="article" aria-label={`Answer of ${answer.model}`} aria-busy={!ended}>
      <Stack gap="xs">
        <Group justify="space-between" wrap="nowrap" gap="xs">
          <Mono>{answer.model}</Mono>
          <Badge color={color} role="status">
            {said}
          </Badge>
        </Group>
        {answer.text !== "" && <div className="answer">{answer.text}</div>}
        {state === "done" && answer.text === "" && (
          <Text size="sm" c="dimmed">
            It answered with nothing.
          </Text>
        )}
        {answer.finish === "length" && (
          <Text size="xs" c="dimmed">
            Cut off where the most tokens were reached.
          </Text>
        )}
        {answer.tenant !== null && answer.tenant !== tenant && (
          <Alert color="red" role="alert" title="Another tenant's key asked this">
            The key that you gave belongs to the tenant {answer.tenant}: its adapters answered, and it pays.
          </Alert>
        )}
        {failure !== null && <Refused failure={failure} onAgain={onAgain} />}
        {served !== null && <Who answer={answer} />}
        {served !== null && ended && (answer.tenant ?? tenant) === tenant && (
          <Billed tenant={tenant} request={served.requestId} />
        )}
        {state === "stopped" && (
          <Text size="xs" c="dimmed">
            {served === null
              ? "It was stopped before anything came; it is on the bill if it had begun."
              : "What was computed until then is billed."}
          </Text>
        )}
      </Stack>
    </Paper>
  );
}

function Who({ answer }: { answer: Answer }) {
  const { served, firstMs, lastMs, usage } = answer;
  if (served === null) {
    return null;
  }
  const rate =
    usage !== null && firstMs !== null && lastMs !== null && lastMs > firstMs && usage.completion > 1
      ? ((usage.completion - 1) / (lastMs - firstMs)) * 1_000
      : null;
  const facts = [
    firstMs === null ? null : `first text after ${countText(Math.round(firstMs), "ms")}`,
    rate === null ? null : `${countText(Math.round(rate), "tokens/s")}`,
    served.queueMs === null ? null : `${countText(served.queueMs, "ms")} in the queue`,
    served.cache === "hit" ? "out of the response cache" : null,
  ].filter((fact) => fact !== null);
  return (
    <Stack gap={2}>
      <Text size="xs">
        {served.adapter === null ? (
          "The base answered, without an adapter."
        ) : (
          <>
            <Mono>{`${served.adapter} version ${served.version ?? "?"}`}</Mono>{" "}
            <span title={served.digest ?? ""}>
              <Mono>{(served.digest ?? "").slice(0, 12)}</Mono>
            </span>
          </>
        )}
      </Text>
      <Text size="xs" className="figures" style={{ whiteSpace: "normal" }}>
        {facts.join(", ")}
      </Text>
      <Text size="xs" c="dimmed">
        Request{" "}
        <Anchor
          component={Link}
          to={`/requests/${served.requestId}`}
          target="_blank"
          className="mono"
          inherit
        >
          {served.requestId}
        </Anchor>
      </Text>
    </Stack>
  );
}

const REASONS: Record<string, string> = {
  no_replica: "No replica serves this yet: one is starting, or the adapter is being loaded.",
  queue_too_long: "It would wait longer in the queue than you would. Room is kept for you until then.",
  tenant_suspended: "The tenant is suspended. An operator can resume it.",
  model_not_found: "Nobody has a model of this name, or this key may not use it.",
  invalid_api_key: "The key has ended. Ask again, and the page makes another.",
};

function Refused({ failure, onAgain }: { failure: Answer["failure"] & object; onAgain: () => void }) {
  const refusal = failure instanceof Refusal ? failure : null;
  const limit = refusal?.limit ?? null;
  const reason = REASONS[failure.code ?? ""];
  return (
    <Alert
      color={failure.passing ? "yellow" : "red"}
      role="alert"
      title={failure.message}
      styles={{ title: { color: "var(--mantine-color-text)" } }}
    >
      <Stack gap="xs">
        {reason !== undefined && <Text size="sm">{reason}</Text>}
        {limit !== null && (
          <Text size="sm">
            The limit <Mono>{limit.limit_id}</Mono> was met.
          </Text>
        )}
        {refusal?.retryAt && <Again at={refusal.retryAt} />}
        {failure.requestId !== null && (
          <Text size="sm">
            Request <Mono>{failure.requestId}</Mono>
          </Text>
        )}
        <Group>
          <Button size="xs" variant="default" onClick={onAgain}>
            Ask again
          </Button>
        </Group>
      </Stack>
    </Alert>
  );
}

function Again({ at }: { at: Date }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.ceil((at.getTime() - now) / 1_000);
  return (
    <Text size="sm">
      {seconds > 0 ? (
        <>
          It may pass at <Clock at={at.getTime()} />, in <Count value={seconds} unit="s" />.
        </>
      ) : (
        "It may pass now."
      )}
    </Text>
  );
}
