import { Button, Group, Table, Text, Title } from "@mantine/core";
import { lazy, Suspense, useId, useState } from "react";
import "./chart.css";
import { figureText, seriesSummary, unitFor } from "./chart-figures";
import { Moment } from "./figures";

const Canvas = lazy(() => import("./chart-canvas"));

export type Tone = "main" | "second" | "third" | "good" | "warn" | "bad" | "calm";

/** `values`: one for each step. Null is what is not known, or was not measured: a gap, and never 0. */
export interface ChartLine {
  label: string;
  tone: Tone;
  dashed?: boolean;
  values: (number | null)[];
}

export interface ChartProps {
  title: string;
  /** Of the figures, as `ms`, `tokens/s` or `requests`; `ms` are written as seconds where they are many. */
  unit: string;
  /** Bars stand on each other, and belong to counts; lines belong to what has no sum. */
  kind: "bars" | "lines";
  /** When each step begins, in Unix seconds, ascending and evenly spaced. */
  times: number[];
  stepS: number;
  lines: ChartLine[];
  /** What a step is called, where that is not the moment at which it begins: a day of some zone. */
  stepName?: (step: number) => string;
  height?: number;
  /** Of a stretch that was chosen with the mouse: Unix seconds. */
  onRange?: (from: number, to: number) => void;
}

/** Figures over time: drawn thin, told in words to who does not see it, and as a table by a click. The drawing
 * is loaded when one is shown, into a place that is as high as it will be. */
export function TimeChart(props: ChartProps) {
  const { title, lines, height = 180 } = props;
  const [asTable, setAsTable] = useState(false);
  const name = useId();
  const unit = unitFor(props.unit, lines);
  const empty = lines.every((line) => line.values.every((value) => value === null));
  return (
    <figure className="chart" aria-labelledby={name}>
      <Group justify="space-between" align="baseline" wrap="nowrap" gap="xs">
        <Title order={3} size="h6" id={name}>
          {title}{" "}
          <Text span size="xs" c="dimmed" fw={400}>
            {unit.name}
          </Text>
        </Title>
        <Button
          size="compact-xs"
          variant="default"
          aria-label={`${title} as a ${asTable ? "chart" : "table"}`}
          onClick={() => setAsTable(!asTable)}
        >
          {asTable ? "Chart" : "Table"}
        </Button>
      </Group>
      <div className="chart-place" style={{ height }}>
        {asTable ? (
          <AsTable {...props} name={name} height={height} />
        ) : (
          <div role="img" aria-label={empty ? `${title}: nothing to show` : seriesSummary(props)}>
            {empty && (
              <div className="chart-nothing">
                <Text size="sm" c="dimmed">
                  Nothing in this time
                </Text>
              </div>
            )}
            <Suspense fallback={null}>
              <Canvas {...props} height={height} />
            </Suspense>
          </div>
        )}
      </div>
      <Group gap="md" mt={4} mb={0} mx={0} p={0} component="ul" aria-label={`Lines of ${title}`} role="list">
        {lines.map((line) => (
          <Text key={line.label} component="li" size="xs" style={{ listStyle: "none" }}>
            <span
              className={line.dashed ? "chart-key chart-key-dash" : "chart-key"}
              style={{ borderTopColor: `var(--chart-${line.tone})` }}
            />
            {line.label}
          </Text>
        ))}
      </Group>
    </figure>
  );
}

/** The same figures; it scrolls within the chart's place. */
function AsTable({
  unit: asked,
  lines,
  times,
  stepName,
  name,
  height,
}: ChartProps & { name: string; height: number }) {
  const unit = unitFor(asked, lines);
  return (
    <section aria-labelledby={name} tabIndex={0} style={{ height, overflow: "auto" }}>
      <Table stickyHeader verticalSpacing={2} aria-labelledby={name}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th scope="col">From</Table.Th>
            {lines.map((line) => (
              <Table.Th key={line.label} scope="col" ta="end">
                {line.label}, {unit.name}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {times.map((time, step) => (
            <Table.Tr key={time}>
              <Table.Th scope="row" fw={400}>
                {stepName?.(step) ?? <Moment at={new Date(time * 1000).toISOString()} />}
              </Table.Th>
              {lines.map((line) => (
                <Table.Td key={line.label} ta="end" className="figures">
                  {figureText(line.values[step] ?? null, unit)}
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </section>
  );
}
