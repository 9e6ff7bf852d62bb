import { Button, Group, Popover, SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import type { Schemas } from "../api/client";
import { Moment } from "./figures";
import { localMinute, momentOfField } from "./local-minute";
import { RANGES, type Range, type RangeSearch } from "./range-search";

const NAMES: Record<Range, string> = {
  "1h": "1 h",
  "6h": "6 h",
  "24h": "24 h",
  "7d": "7 days",
  "30d": "30 days",
};
export function RangePicker({
  search,
  onChange,
}: {
  search: RangeSearch;
  onChange: (next: RangeSearch) => void;
}) {
  const [open, setOpen] = useState(false);
  return (
    <Group gap="xs">
      <SegmentedControl
        aria-label="Time"
        size="xs"
        data={RANGES.map((value) => ({ value, label: NAMES[value] }))}
        value={search.since === undefined ? (search.range ?? "1h") : ""}
        onChange={(value) => onChange({ range: value as Range, since: undefined, until: undefined })}
      />
      <Popover opened={open} onChange={setOpen} position="bottom-end" withArrow trapFocus>
        <Popover.Target>
          <Button
            size="xs"
            variant={search.since === undefined ? "default" : "filled"}
            aria-expanded={open}
            onClick={() => setOpen(!open)}
          >
            From, to…
          </Button>
        </Popover.Target>
        <Popover.Dropdown>
          <Span
            search={search}
            onChange={(next) => {
              setOpen(false);
              onChange(next);
            }}
          />
        </Popover.Dropdown>
      </Popover>
    </Group>
  );
}

function Span({ search, onChange }: { search: RangeSearch; onChange: (next: RangeSearch) => void }) {
  const [since, setSince] = useState(localMinute(search.since));
  const [until, setUntil] = useState(localMinute(search.until));
  const wrong =
    since === ""
      ? "When does it begin?"
      : until !== "" && until <= since
        ? "It ends before it begins."
        : null;
  const [told, setTold] = useState(false);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        setTold(true);
        if (wrong === null) {
          onChange({
            range: undefined,
            since: momentOfField(since) ?? undefined,
            until: momentOfField(until) ?? undefined,
          });
        }
      }}
    >
      <Stack gap="xs">
        <TextInput
          type="datetime-local"
          label="From"
          value={since}
          error={told ? wrong : null}
          onChange={(event) => setSince(event.currentTarget.value)}
        />
        <TextInput
          type="datetime-local"
          label="To"
          description="Empty: until now"
          value={until}
          onChange={(event) => setUntil(event.currentTarget.value)}
        />
        <Text size="xs" c="dimmed">
          In {zoneName()}
        </Text>
        <Button type="submit" size="xs">
          Show
        </Button>
      </Stack>
    </form>
  );
}

type Told = Pick<Schemas["RequestMetrics"], "start" | "end" | "step_s" | "complete_until">;

/** Which time the figures are of, as the server took it. */
export function RangeLine({ of }: { of: Told }) {
  return (
    <Text size="sm" c="dimmed">
      <Moment at={of.start} /> to <Moment at={of.end} />, {zoneName()}, in steps of {stepText(of.step_s)};
      complete until <Moment at={of.complete_until} />
    </Text>
  );
}

function zoneName(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}

function stepText(seconds: number): string {
  if (seconds % 86_400 === 0) {
    return `${seconds / 86_400}\u00a0d`;
  }
  return seconds % 3_600 === 0 ? `${seconds / 3_600}\u00a0h` : `${seconds / 60}\u00a0min`;
}
