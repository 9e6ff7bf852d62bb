import { Table, Text } from "@mantine/core";
import type { Schemas } from "../api/client";
import { durationText } from "../parts/duration";
import { countText } from "../parts/figures";
import { Scrolls } from "../parts/scrolls";
import { percentText, type Rollout } from "./rollout-words";

type Figures = Schemas["FiguresOut"];

interface Row {
  name: string;
  of: (figures: Figures) => string;
  /** What is held against the old version's. */
  beside?: (old: Figures, now: Figures) => string;
  bound?: (rollout: Rollout) => string;
}

const measured = (ms: number | null) => (ms === null ? "–" : durationText(ms));

const times = (value: (figures: Figures) => number | null) => (old: Figures, now: Figures) => {
  const [before, after] = [value(old), value(now)];
  return before === null || after === null || before === 0 ? "–" : `× ${(after / before).toFixed(2)}`;
};

const ROWS: Row[] = [
  { name: "Requests", of: (figures) => countText(figures.requests) },
  { name: "Failed", of: (figures) => countText(figures.failed) },
  {
    name: "Error rate",
    of: (figures) => (figures.requests === 0 ? "–" : percentText(figures.error_rate)),
    beside: (old, now) =>
      old.requests === 0 || now.requests === 0 ? "–" : points(now.error_rate - old.error_rate),
    bound: ({ rollback_on: on }) =>
      on.error_rate === null || on.error_rate === undefined
        ? "not judged"
        : `≤ ${percentText(on.error_rate)}`,
  },
  {
    name: "No number (NaN)",
    of: (figures) => countText(figures.not_finite),
    bound: ({ rollback_on: on }) => (on.not_finite ? "none" : "not judged"),
  },
  {
    name: "First token, p50",
    of: (figures) => measured(figures.ttft_ms_p50),
    beside: times((figures) => figures.ttft_ms_p50),
  },
  {
    name: "First token, p95",
    of: (figures) => measured(figures.ttft_ms_p95),
    beside: times((figures) => figures.ttft_ms_p95),
    bound: ({ rollback_on: on }) =>
      on.ttft_p95_ratio === null || on.ttft_p95_ratio === undefined
        ? "not judged"
        : `≤ × ${on.ttft_p95_ratio}`,
  },
  {
    name: "Between tokens, p50",
    of: (figures) => measured(figures.inter_token_ms_p50),
    beside: times((figures) => figures.inter_token_ms_p50),
  },
  {
    name: "Between tokens, p95",
    of: (figures) => measured(figures.inter_token_ms_p95),
    beside: times((figures) => figures.inter_token_ms_p95),
  },
  { name: "Served, input tokens", of: (figures) => countText(figures.prompt_tokens) },
  { name: "Served, output tokens", of: (figures) => countText(figures.completion_tokens) },
];

function points(share: number): string {
  const shown = (share * 100).toFixed(1);
  return `${share > 0 ? "+" : ""}${shown}\u00a0points`;
}

export function Comparison({ rollout }: { rollout: Rollout }) {
  const { old, new: now } = rollout;
  return (
    <>
      <Scrolls minWidth={440} what="Figures of the old and the new version">
        <Table verticalSpacing={4}>
          <caption className="off-screen">Figures of the old and the new version</caption>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">Figure</Table.Th>
              <Table.Th scope="col" ta="end">{`Version ${old.version}, old`}</Table.Th>
              <Table.Th scope="col" ta="end">{`Version ${now.version}, new`}</Table.Th>
              <Table.Th scope="col" ta="end">
                New to old
              </Table.Th>
              <Table.Th scope="col" ta="end">
                Allowed
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {ROWS.map((row) => (
              <Table.Tr key={row.name}>
                <Table.Th scope="row" fw={400} className="figures">
                  {row.name}
                </Table.Th>
                <Table.Td ta="end" className="figures">
                  {row.of(old)}
                </Table.Td>
                <Table.Td ta="end" className="figures">
                  {row.of(now)}
                </Table.Td>
                <Table.Td ta="end" className="figures">
                  {row.beside?.(old, now) ?? ""}
                </Table.Td>
                <Table.Td ta="end" className="figures">
                  {row.bound?.(rollout) ?? ""}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Scrolls>
      <Text size="sm" c="dimmed" mt="sm">
        {`Of version ${old.version} since the rollout began to move the alias, of version ${now.version} since its present step did; a second or two old. Only this tenant's own requests: not those of tenants that the adapter is shared with. Times are estimates, at most 9\u00a0% off; what clients cut is not counted.`}
      </Text>
    </>
  );
}
