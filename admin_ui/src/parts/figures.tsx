import { Text } from "@mantine/core";

const counts = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const moments = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** With a no-break space before its unit, in figures of one width. */
export function Count({ value, unit }: { value: number | null; unit?: string }) {
  return <span className="figures">{value === null ? "no limit" : countText(value, unit)}</span>;
}

export function countText(value: number, unit?: string): string {
  return counts.format(value) + (unit === undefined ? "" : `\u00a0${unit}`);
}

const sizes = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Bytes in the unit that fits them, as limits are written in the API's words. */
export function bytesText(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${sizes.format(value)}\u00a0${SIZES[unit]}`;
}

const figures = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });

/** A measured number, to three digits; powers of ten where it is very small or large. */
export function numberText(value: number): string {
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : figures.format(value);
}

/** Exact on hover. */
export function Bytes({ value }: { value: number }) {
  return (
    <span className="figures" title={countText(value, "bytes")}>
      {bytesText(value)}
    </span>
  );
}

/** In the viewer's zone, with UTC on hover. */
export function Moment({ at, absent = "never" }: { at: string | null; absent?: string }) {
  if (at === null) {
    return (
      <Text span c="dimmed" size="sm">
        {absent}
      </Text>
    );
  }
  const date = new Date(at);
  return (
    <time dateTime={at} title={utcText(date)} className="figures">
      {moments.format(date)}
    </time>
  );
}

/** A moment of today, to the second; with UTC on hover. */
export function Clock({ at }: { at: number }) {
  const date = new Date(at);
  return (
    <time dateTime={date.toISOString()} title={utcText(date)} className="figures">
      {clock.format(date)}
    </time>
  );
}

export function utcText(date: Date): string {
  return `${date.toISOString().replace("T", " ").slice(0, 19)} UTC`;
}

/** An id or a name of the API, as it is written there. */
export function Mono({ children }: { children: string }) {
  return <code className="mono">{children}</code>;
}
