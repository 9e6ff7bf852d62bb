import { Text } from "@mantine/core";

const counts = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const moments = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** With a no-break space before its unit, in figures of one width. */
export function Count({ value, unit }: { value: number | null; unit?: string }) {
  return <span className="figures">{value === null ? "no limit" : countText(value, unit)}</span>;
}

export function countText(value: number, unit?: string): string {
  return counts.format(value) + (unit === undefined ? "" : `\u00a0${unit}`);
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
    <time
      dateTime={at}
      title={`${date.toISOString().replace("T", " ").slice(0, 19)} UTC`}
      className="figures"
    >
      {moments.format(date)}
    </time>
  );
}

/** An id or a name of the API, as it is written there. */
export function Mono({ children }: { children: string }) {
  return <code className="mono">{children}</code>;
}
