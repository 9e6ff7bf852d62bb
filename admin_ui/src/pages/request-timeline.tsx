import { Card, Group, Text, Title } from "@mantine/core";
import "../parts/chart.css";
import { durationText } from "../parts/duration";
import type { Story } from "./request";

/** Each step with its time, as words first; the bar beside them is where it lies within the whole. */
export function Timeline({ story }: { story: Story }) {
  const whole = Math.max(story.request.total_ms, 0.001);
  const longest = Math.max(...story.timeline.map((step) => step.ms));
  return (
    <Card withBorder p="sm" component="section" aria-label="Step by step">
      <Title order={3} size="h5" mb="sm">
        Step by step
      </Title>
      <ol style={{ margin: 0, padding: 0, listStyle: "none" }}>
        {story.timeline.map((step) => (
          <li key={step.step} style={{ marginBottom: "0.6rem" }}>
            <Group justify="space-between" wrap="nowrap" align="baseline" gap="sm">
              <Text size="sm" fw={step.ms === longest ? 600 : 400}>
                {step.what}
                {story.at_step === step.step && story.request.outcome !== "served" && (
                  <Text span size="sm" c="dimmed">
                    {" "}
                    (here it ended)
                  </Text>
                )}
              </Text>
              <Text size="sm" className="figures">
                {durationText(step.ms)}
                <Text span size="xs" c="dimmed">
                  {" "}
                  from {durationText(step.begins_ms)}
                </Text>
              </Text>
            </Group>
            <div className="waterfall" aria-hidden="true">
              <div
                style={{
                  marginInlineStart: `${Math.min(99.5, (step.begins_ms / whole) * 100)}%`,
                  width: `${Math.max(0.5, (step.ms / whole) * 100)}%`,
                }}
              />
            </div>
            {step.note !== null && (
              <Text size="xs" c="dimmed">
                {step.note}
              </Text>
            )}
          </li>
        ))}
      </ol>
      {story.engine !== null && <Engine engine={story.engine} />}
    </Card>
  );
}

function Engine({ engine }: { engine: NonNullable<Story["engine"]> }) {
  const parts = [
    ["waited in the engine", engine.queue_ms],
    ["loaded its adapter", engine.adapter_load_ms],
    ["first token", engine.first_token_ms],
    ["all of it", engine.total_ms],
  ] as const;
  const told = parts.filter(([, ms]) => ms !== null).map(([name, ms]) => `${name} ${durationText(ms)}`);
  return (
    <Text size="sm" mt="xs">
      By the replica's own clock: {told.join(", ")}.
    </Text>
  );
}
