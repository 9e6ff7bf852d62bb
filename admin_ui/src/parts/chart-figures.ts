/** Numbers and moments of charts, in words. */
import type { ChartLine, ChartProps } from "./chart";

export interface Unit {
  name: string;
  /** What a value is divided by, to be in this unit. */
  per: number;
}

const MANY_MS = 10_000;
const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const some = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const small = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 2 });
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const both = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function unitFor(asked: string, lines: ChartLine[]): Unit {
  if (asked === "ms" && most(lines) >= MANY_MS) {
    return { name: "s", per: 1000 };
  }
  return { name: asked, per: 1 };
}

export function figureText(value: number | null, unit: Unit): string {
  if (value === null) {
    return "unknown";
  }
  const figure = value / unit.per;
  const numbers = figure >= 100 || Number.isInteger(figure) ? whole : figure >= 1 ? some : small;
  return numbers.format(figure);
}

export function axisText(value: number, unit: Unit): string {
  const figure = value / unit.per;
  return figure >= 10_000 ? compact.format(figure) : figure >= 1 ? some.format(figure) : small.format(figure);
}

/** Where a step stands on the axis: the time of the day, with the day below the first one of it. */
export function axisTimes(splits: (number | null)[], spanS: number): (string | null)[] {
  let before = "";
  return splits.map((split) => {
    if (split === null) {
      return null;
    }
    const at = new Date(split * 1000);
    const of = day.format(at);
    const first = of !== before;
    before = of;
    if (spanS > 3 * 86_400) {
      return first ? of : "";
    }
    return first ? `${clock.format(at)}\n${of}` : clock.format(at);
  });
}

export function stepText(time: number): string {
  return both.format(new Date(time * 1000));
}

/** What somebody hears who does not see the chart: each line's least, most and last value. */
export function seriesSummary({ title, unit: asked, times, stepS, stepName, lines }: ChartProps): string {
  const unit = unitFor(asked, lines);
  const from = stepName?.(0) ?? stepText(times[0] ?? 0);
  const to = stepName?.(times.length - 1) ?? stepText((times.at(-1) ?? 0) + stepS);
  const told = lines.map((line) => {
    const known = line.values.filter((value) => value !== null);
    const last = known.at(-1);
    if (last === undefined) {
      return `${line.label}: nothing measured`;
    }
    const span = `${figureText(Math.min(...known), unit)} to ${figureText(Math.max(...known), unit)}`;
    const gaps = line.values.length - known.length;
    const missing = gaps === 0 ? "" : `, unknown in ${gaps} of ${line.values.length} steps`;
    return `${line.label}: ${span} ${unit.name}, last ${figureText(last, unit)}${missing}`;
  });
  return `${title}, ${from} to ${to}. ${told.join("; ")}.`;
}

function most(lines: ChartLine[]): number {
  return lines.reduce((top, line) => line.values.reduce<number>((a, b) => Math.max(a, b ?? 0), top), 0);
}
