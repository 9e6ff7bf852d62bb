import { Group, Select, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { utcText } from "./figures";
import { DayField } from "./filters";

export const PERIODS = ["last_7_days", "last_31_days", "this_month", "last_month"] as const;
export type Period = (typeof PERIODS)[number];

const NAMES: Record<Period, string> = {
  last_7_days: "Last 7 days",
  last_31_days: "Last 31 days",
  this_month: "This month",
  last_month: "Last month",
};
const DAYS = "days";
/** Names that a browser may know by an older one only. */
const RENAMED = ["Asia/Kolkata", "Asia/Kathmandu", "Asia/Ho_Chi_Minh", "Asia/Yangon", "Europe/Kyiv"];

/** A window as an address has it: the server knows which days it is of. */
export interface WindowSearch {
  period?: Period;
  first?: string;
  last?: string;
  zone?: string;
}

export function windowSearch(search: Record<string, unknown>): WindowSearch {
  const day = (value: unknown) =>
    typeof value === "string" && /^\d{4}-\d{2}-\d{2}$/.test(value) ? value : undefined;
  const first = day(search.first);
  const last = day(search.last);
  const named = PERIODS.find((each) => each === search.period);
  return {
    period: first === undefined && last === undefined ? named : undefined,
    first,
    last,
    zone: typeof search.zone === "string" && search.zone !== "" ? search.zone : undefined,
  };
}

export function windowQuery(search: WindowSearch) {
  const given = search.first !== undefined || search.last !== undefined;
  return {
    period: given ? null : (search.period ?? "last_31_days"),
    first: search.first ?? null,
    last: search.last ?? null,
    zone: search.zone ?? null,
  };
}

interface Shown {
  first: string;
  last: string;
  zone: string;
  start: string;
  end: string;
  complete_until: string | null;
}

/** `shown`: the window as the server last told it, of which the fields for single days begin. */
export function WindowPicker({
  search,
  zone,
  shown,
  onChange,
  children,
}: {
  search: WindowSearch;
  zone: string;
  shown: Shown | undefined;
  onChange: (next: WindowSearch) => void;
  children?: ReactNode;
}) {
  const byDays = search.first !== undefined || search.last !== undefined;
  const chosen = search.zone ?? zone;
  const pick = (value: string | null) => {
    const period = PERIODS.find((each) => each === value);
    onChange(
      period === undefined
        ? { period: undefined, first: shown?.first, last: shown?.last }
        : { period, first: undefined, last: undefined },
    );
  };
  return (
    <Group align="end" gap="sm">
      <Select
        label="Window"
        data={[...PERIODS.map((value) => ({ value, label: NAMES[value] })), { value: DAYS, label: "Days…" }]}
        value={byDays ? DAYS : (search.period ?? "last_31_days")}
        onChange={pick}
        allowDeselect={false}
        w={{ base: "100%", xs: 150 }}
      />
      {byDays && (
        <>
          <DayField
            label="First day"
            value={search.first}
            max={search.last}
            onChange={(first) => onChange({ first })}
          />
          <DayField
            label="Last day"
            value={search.last}
            min={search.first}
            onChange={(last) => onChange({ last })}
          />
        </>
      )}
      <Select
        label="Days of"
        data={zones(chosen, zone)}
        value={chosen}
        onChange={(value) => onChange({ zone: value === null || value === zone ? undefined : value })}
        searchable
        allowDeselect={false}
        nothingFoundMessage="No such time zone"
        w={{ base: "100%", xs: 210 }}
      />
      {children}
    </Group>
  );
}

/** Stands beside every sum: of which instants it is, by whose clock, and until when it is complete. */
export function WindowLine({ of, children }: { of: Omit<Shown, "first" | "last">; children?: ReactNode }) {
  return (
    <Text size="sm" c="dimmed" component="p" m={0}>
      <ZonedMoment at={of.start} zone={of.zone} /> to <ZonedMoment at={of.end} zone={of.zone} />, {of.zone} ·{" "}
      <CompleteUntil at={of.complete_until} end={of.end} zone={of.zone} />
      {children}
    </Text>
  );
}

function CompleteUntil({ at, end, zone }: { at: string | null; end: string; zone: string }) {
  if (at === null) {
    return <>nobody knows yet what is missing</>;
  }
  if (new Date(at) >= new Date(end)) {
    return <>complete</>;
  }
  return (
    <>
      complete until <ZonedMoment at={at} zone={zone} />
    </>
  );
}

/** By the clock of the page's own zone; UTC on hover. */
function ZonedMoment({ at, zone }: { at: string; zone: string }) {
  const date = new Date(at);
  return (
    <time dateTime={at} title={utcText(date)} className="figures">
      {clockOf(zone).format(date)}
    </time>
  );
}

function clockOf(zone: string): Intl.DateTimeFormat {
  const style = { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" } as const;
  try {
    return new Intl.DateTimeFormat(undefined, { ...style, timeZone: zone });
  } catch {
    return new Intl.DateTimeFormat(undefined, { ...style, timeZone: "UTC" }); // newer than this browser
  }
}

function zones(...more: string[]): string[] {
  return [...new Set([...more, "UTC", ...RENAMED, ...Intl.supportedValuesOf("timeZone")])].sort();
}
