import { Text, useComputedColorScheme } from "@mantine/core";
import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { ChartLine, ChartProps, Tone } from "./chart";
import { axisText, axisTimes, figureText, stepText, type Unit, unitFor } from "./chart-figures";

const FONT = "11px system-ui, sans-serif";
const COUNTS = [1, 2, 5]
  .flatMap((n) => Array.from({ length: 10 }, (_, power) => n * 10 ** power))
  .sort((a, b) => a - b);

interface Hover {
  step: number;
  left: number;
}

/** The drawing alone, by uPlot; this file is the only one that knows of it. */
export default function ChartCanvas(props: ChartProps & { height: number }) {
  const { lines, times, height, kind } = props;
  const place = useRef<HTMLDivElement>(null);
  const drawn = useRef<uPlot | null>(null);
  const current = useRef(props);
  current.current = props;
  const [hover, setHover] = useState<Hover | null>(null);
  const scheme = useComputedColorScheme("light");
  const unit = unitFor(props.unit, lines);
  const shape = JSON.stringify([kind, unit.name, lines.map((line) => [line.label, line.tone, line.dashed])]);
  const data = useMemo(() => dataOf(kind, times, lines), [kind, times, lines]);

  // Drawn anew when its lines are others; new figures of the same lines are set.
  useEffect(() => {
    const element = place.current;
    if (element === null) {
      return;
    }
    const plot = new uPlot(optionsOf(current, element.clientWidth, setHover), data, element);
    drawn.current = plot;
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      plot.destroy();
      drawn.current = null;
    };
  }, [shape, height]);
  useEffect(() => drawn.current?.setData(data), [data]);
  useEffect(() => {
    if (scheme) {
      drawn.current?.redraw(false); // colours are asked for whenever it is drawn
    }
  }, [scheme]);

  return (
    <>
      <div ref={place} />
      {hover !== null && (
        <Told hover={hover} of={props} unit={unit} width={place.current?.clientWidth ?? 0} />
      )}
    </>
  );
}

function Told({ hover, of, unit, width }: { hover: Hover; of: ChartProps; unit: Unit; width: number }) {
  const right = hover.left > width / 2;
  return (
    <div
      className="chart-hover"
      style={right ? { right: width - hover.left + 12 } : { left: hover.left + 12 }}
    >
      <Text size="xs" c="dimmed">
        {of.stepName?.(hover.step) ?? stepText(of.times[hover.step] ?? 0)}
      </Text>
      {of.lines.map((line) => {
        const value = line.values[hover.step] ?? null;
        return (
          <Text size="xs" key={line.label} className="figures">
            <span className="chart-key" style={{ borderTopColor: `var(--chart-${line.tone})` }} />
            {line.label}: {figureText(value, unit)}
            {value !== null && `\u00a0${unit.name}`}
          </Text>
        );
      })}
    </div>
  );
}

/** Bars of several lines stand on each other: the highest sum is drawn first and the others over it. */
function dataOf(kind: ChartProps["kind"], times: number[], lines: ChartLine[]): uPlot.AlignedData {
  if (kind === "lines") {
    return [times, ...lines.map((line) => line.values)];
  }
  const sums: (number | null)[][] = [];
  let below: (number | null)[] = times.map(() => 0);
  for (const { values } of lines) {
    below = values.map((value, step) => (value === null ? null : value + (below[step] ?? 0)));
    sums.unshift(below);
  }
  return [times, ...sums];
}

function optionsOf(
  current: { current: ChartProps & { height: number } },
  width: number,
  onHover: (hover: Hover | null) => void,
): uPlot.Options {
  const { kind, lines, height } = current.current;
  const unit = unitFor(current.current.unit, lines);
  const whole = lines.every((line) => line.values.every((value) => Number.isInteger(value ?? 0)));
  const axis: uPlot.Axis = {
    font: FONT,
    labelFont: FONT,
    stroke: () => token("axis"),
    grid: { stroke: () => token("grid"), width: 1 },
    ticks: { show: false },
  };
  const ordered = kind === "bars" ? [...lines].reverse() : lines;
  return {
    width,
    height,
    legend: { show: false },
    padding: [8, 18, 0, 0],
    scales: {
      x: {
        range: () => {
          const { times, stepS } = current.current;
          return [times[0] ?? 0, (times.at(-1) ?? 0) + stepS];
        },
      },
      y: { range: (_, __, top) => [0, top > 0 ? top * 1.1 : 1] },
    },
    series: [{}, ...ordered.map((line) => (kind === "bars" ? bars(line.tone) : curve(line)))],
    axes: [
      {
        ...axis,
        size: 36,
        space: 70,
        grid: { show: false },
        values: (self, splits) => axisTimes(splits, (self.scales.x?.max ?? 0) - (self.scales.x?.min ?? 0)),
      },
      {
        ...axis,
        size: 48,
        space: 32,
        incrs: whole && unit.per === 1 ? COUNTS : undefined,
        values: (_, splits) => splits.map((split) => `${axisText(split, unit)}`),
        label: unit.name,
        labelSize: 16,
        labelGap: 0,
      },
    ],
    cursor: {
      y: false,
      points: { show: kind === "lines" },
      dataIdx: (_, __, ___, at) => stepAt(current.current, at) ?? 0,
      drag: { x: current.current.onRange !== undefined, y: false, setScale: false },
    },
    hooks: {
      setCursor: [
        (self) => {
          const { left = -1 } = self.cursor;
          const step = left < 0 ? null : stepAt(current.current, self.posToVal(left, "x"));
          onHover(step === null ? null : { step, left: self.over.offsetLeft + left });
        },
      ],
      setSelect: [
        (self) => {
          const { left, width: chosen } = self.select;
          if (chosen > 4) {
            current.current.onRange?.(self.posToVal(left, "x"), self.posToVal(left + chosen, "x"));
            self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          }
        },
      ],
    },
  };
}

/** That a moment lies in; null outside of all. */
function stepAt({ times, stepS }: ChartProps, at: number): number | null {
  const step = Math.floor((at - (times[0] ?? 0)) / stepS);
  return step >= 0 && step < times.length ? step : null;
}

function bars(tone: Tone): uPlot.Series {
  return {
    stroke: () => token(tone),
    fill: () => token(tone),
    width: 0,
    paths: uPlot.paths.bars?.({ align: 1, size: [0.8, 24] }),
    points: { show: false },
  };
}

/** A value between two gaps has no line to either side, so it is a point. */
function curve(line: ChartLine): uPlot.Series {
  return {
    stroke: () => token(line.tone),
    width: 1.5,
    dash: line.dashed ? [4, 3] : undefined,
    points: {
      show: true,
      size: 4,
      fill: () => token(line.tone),
      filter: (self, of) => alone(self.data[of] ?? []),
    },
  };
}

function alone(values: ArrayLike<number | null | undefined>): number[] {
  const found: number[] = [];
  for (let step = 0; step < values.length; step += 1) {
    if (values[step] != null && values[step - 1] == null && values[step + 1] == null) {
      found.push(step);
    }
  }
  return found;
}

function token(name: Tone | "axis" | "grid"): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--chart-${name}`).trim();
}
