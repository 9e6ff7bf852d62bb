import { Card, SimpleGrid, Stack, Text } from "@mantine/core";
import { type ReactNode, useMemo } from "react";
import { TimeChart } from "./chart";
import { durationText } from "./duration";
import { countText } from "./figures";
import { RangeLine } from "./range";
import type { RangeSearch } from "./range-search";
import { answered, type Metrics, percentiles, requests, stepsOf, tokens, unanswered } from "./traffic-steps";

const share = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 2 });
const rate = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });

/** What requests came to in a stretch of time: the sums, then how they went. */
export function Traffic({ of, onRange }: { of: Metrics; onRange: (next: RangeSearch) => void }) {
  const charts = useMemo(() => {
    const steps = stepsOf(of);
    const { times, stepS } = steps;
    const over = { times, stepS };
    return [
      { ...over, title: "Requests", unit: "requests", kind: "bars" as const, lines: requests(steps) },
      { ...over, title: "Tokens per second", unit: "tokens/s", kind: "bars" as const, lines: tokens(steps) },
      { ...over, title: "Not answered", unit: "requests", kind: "bars" as const, lines: unanswered(steps) },
      { ...over, title: "Time to first token", ...timesOf(steps, "ttft_ms") },
      { ...over, title: "Time between tokens", ...timesOf(steps, "inter_token_ms") },
      { ...over, title: "Wait in the queue", ...timesOf(steps, "queue_ms") },
    ];
  }, [of]);
  const choose = (from: number, to: number) =>
    onRange({ since: iso(Math.floor(from / 60) * 60), until: iso(Math.ceil(to / 60) * 60) });
  return (
    <Stack gap="sm">
      <RangeLine of={of} />
      <Sums of={of} />
      <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }}>
        {charts.map((chart) => (
          <Card withBorder key={chart.title} p="sm">
            <TimeChart {...chart} onRange={choose} />
          </Card>
        ))}
      </SimpleGrid>
    </Stack>
  );
}

const timesOf = (steps: ReturnType<typeof stepsOf>, of: Parameters<typeof percentiles>[1]) => ({
  unit: "ms",
  kind: "lines" as const,
  lines: percentiles(steps, of),
});

const iso = (at: number) => new Date(at * 1000).toISOString();

function Sums({ of }: { of: Metrics }) {
  const total = of.data[0]?.total;
  const all = total?.requests ?? 0;
  const bad = all - (total === undefined ? 0 : answered(total));
  const seconds = (Date.parse(of.complete_until) - Date.parse(of.start)) / 1000;
  const output = total?.completion_tokens ?? 0;
  return (
    <SimpleGrid cols={{ base: 2, sm: 3, lg: 6 }} spacing="xs">
      <Figure name="Requests" value={countText(all)} />
      <Figure name="Not answered" value={all === 0 ? "–" : share.format(bad / all)} more={countText(bad)} />
      <Figure
        name="Input tokens"
        value={countText(total?.prompt_tokens ?? 0)}
        more={`${countText(total?.cached_tokens ?? 0)} cached`}
      />
      <Figure
        name="Output tokens"
        value={countText(output)}
        more={seconds > 0 ? `${rate.format(output / seconds)}\u00a0tokens/s` : undefined}
      />
      <Figure
        name="First token, p95"
        value={measured(total?.ttft_ms.p95)}
        more={`p50 ${measured(total?.ttft_ms.p50)}`}
      />
      <Figure
        name="Queue wait, p95"
        value={measured(total?.queue_ms.p95)}
        more={`p50 ${measured(total?.queue_ms.p50)}`}
      />
    </SimpleGrid>
  );
}

const measured = (ms: number | null | undefined) =>
  ms === null || ms === undefined ? "–" : durationText(ms);

export function Figure({ name, value, more }: { name: string; value: ReactNode; more?: ReactNode }) {
  return (
    <Card withBorder p="xs" role="group" aria-label={name}>
      <Text size="xs" c="dimmed">
        {name}
      </Text>
      <Text size="lg" fw={600} className="figures">
        {value}
      </Text>
      <Text size="xs" c="dimmed" className="figures" mih="1.2rem">
        {more}
      </Text>
    </Card>
  );
}
