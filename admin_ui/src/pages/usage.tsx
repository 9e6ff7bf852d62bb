import { Alert, Button, Card, Group, SegmentedControl, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { api, heard, type Schemas, tagged } from "../api/client";
import { TimeChart } from "../parts/chart";
import { Confirm } from "../parts/confirm";
import { Count, countText, Mono } from "../parts/figures";
import { Money } from "../parts/money";
import { Empty, Read } from "../parts/states";
import { SumTable } from "../parts/tokens";
import { WindowLine, WindowPicker, type WindowSearch, windowQuery } from "../parts/window";
import type { UsageSearch } from "../routes/billing";
import { SharedUse } from "./shared-use";
import { type Tenant, useTenant, useTenantId } from "./tenant-data";

type Summary = Schemas["UsageSummary"];

const LOOK_MS = 60_000; // new usage is in within a minute
const BY = [
  { value: "adapter", label: "Adapter" },
  { value: "key", label: "Key" },
  { value: "service_class", label: "Service class" },
];

export function UsagePage() {
  const search = useSearch({ from: "/inside/tenants/$tenant/usage" });
  const navigate = useNavigate({ from: "/tenants/$tenant/usage" });
  const go = (next: Partial<UsageSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...next }), replace: true, resetScroll: false });
  return (
    <Stack>
      <SegmentedControl
        aria-label="Whose use"
        data={[
          { value: "own", label: "What it used" },
          { value: "shared", label: "What others used" },
        ]}
        value={search.view ?? "own"}
        onChange={(value) => go({ view: value === "shared" ? "shared" : undefined })}
        w="max-content"
        maw="100%"
        orientation="horizontal"
      />
      {search.view === "shared" ? (
        <SharedUse search={search} onWindow={go} />
      ) : (
        <OwnUse search={search} go={go} />
      )}
    </Stack>
  );
}

function OwnUse({ search, go }: { search: UsageSearch; go: (next: Partial<UsageSearch>) => void }) {
  const id = useTenantId();
  const tenant = useTenant();
  const query = { ...windowQuery(search), by: search.by ?? "adapter" };
  const read = useQuery({
    queryKey: ["tenant", id, "usage", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/usage/summary", { params: { path: { tenant: id }, query } })),
    placeholderData: keepPreviousData,
    refetchInterval: LOOK_MS,
  });
  return (
    <>
      <WindowPicker
        search={search}
        zone={tenant.data?.reporting_zone ?? "UTC"}
        shown={read.data}
        onChange={(next: WindowSearch) => go(next)}
      >
        {tenant.data !== undefined && search.zone !== undefined && (
          <MakeZone tenant={tenant.data} zone={search.zone} onDone={() => go({ zone: undefined })} />
        )}
      </WindowPicker>
      <Read of={read} what="the usage">
        {(found) => (
          <Stack aria-busy={read.isPlaceholderData} className={read.isPlaceholderData ? "waiting" : ""}>
            <Totals of={found} />
            <Notes of={found} />
            {found.total.requests === 0 && found.groups.length === 0 ? (
              <Nothing tenant={tenant.data} />
            ) : (
              <Shown of={found} tenant={tenant.data} by={query.by} onBy={(by) => go({ by })} />
            )}
          </Stack>
        )}
      </Read>
    </>
  );
}

function Totals({ of }: { of: Summary }) {
  const { total, currency } = of;
  return (
    <Card withBorder component="section" aria-label="Total">
      <SimpleGrid cols={{ base: 2, sm: 4 }} mb="sm">
        <Figure name="Cost">
          <Money amount={total.amount} currency={currency} atLeast={total.unpriced_tokens > 0} />
        </Figure>
        <Figure name="Requests">
          <Count value={total.requests} />
        </Figure>
        <Figure name="Input tokens" note={`${countText(total.cached_tokens)} of them cached`}>
          <Count value={total.prompt_tokens} />
        </Figure>
        <Figure name="Output tokens">
          <Count value={total.completion_tokens} />
        </Figure>
      </SimpleGrid>
      <WindowLine of={of}>{of.zone !== "UTC" && " · statements are of months in UTC"}</WindowLine>
    </Card>
  );
}

function Figure({ name, note, children }: { name: string; note?: string; children: ReactNode }) {
  return (
    <div>
      <Text size="sm" c="dimmed">
        {name}
      </Text>
      <Text size="xl" fw={600}>
        {children}
      </Text>
      {note !== undefined && (
        <Text size="xs" c="dimmed" className="figures">
          {note}
        </Text>
      )}
    </div>
  );
}

/** What is in none of the sums. */
function Notes({ of }: { of: Summary }) {
  return (
    <>
      {of.unknown_requests > 0 && (
        <Alert color="yellow" role="status" p="xs">
          {countText(of.unknown_requests)} requests are in no sum: nobody could count their tokens yet. That
          is settled within a day.
        </Alert>
      )}
      {of.total.unpriced_tokens > 0 && (
        <Alert color="yellow" role="status" p="xs">
          {countText(of.total.unpriced_tokens)} tokens have no price, so no cost says what they come to.
        </Alert>
      )}
    </>
  );
}

interface ShownProps {
  of: Summary;
  tenant: Tenant | undefined;
  by: NonNullable<UsageSearch["by"]>;
  onBy: (by: UsageSearch["by"]) => void;
}

function Shown({ of, tenant, by, onBy }: ShownProps) {
  const others =
    of.others === null ? [] : [{ key: "", name: `${of.others.groups} others, summed`, sum: of.others }];
  return (
    <>
      <Card withBorder>
        <DayChart of={of} />
      </Card>
      <Card withBorder>
        <Group justify="space-between" mb="xs">
          <Title order={2} size="h4">
            By {BY.find(({ value }) => value === by)?.label.toLowerCase()}
          </Title>
          <SegmentedControl
            aria-label="Sum by"
            size="xs"
            data={BY}
            value={by}
            onChange={(value) => onBy(value as UsageSearch["by"])}
          />
        </Group>
        <SumTable
          caption={`Usage by ${by.replace("_", " ")}, the largest first`}
          of={BY.find(({ value }) => value === of.by)?.label ?? ""}
          currency={of.currency}
          total={of.total}
          rows={[
            ...of.groups.map((group) => ({
              key: `${of.by} ${group.id}`,
              name: <GroupName group={group} by={of.by} tenant={tenant} />,
              sum: group,
            })),
            ...others,
          ]}
        />
      </Card>
      <Card withBorder>
        <Title order={2} size="h4" mb="xs">
          By day
        </Title>
        <SumTable
          caption={`Usage by day of ${of.zone}, the latest first`}
          of={`Day (${of.zone})`}
          currency={of.currency}
          total={of.total}
          rows={of.days.toReversed().map((day) => ({
            key: day.day,
            name: <DayName day={day} until={of.complete_until} />,
            sum: isKnown(day, of.complete_until) ? day : null,
          }))}
        />
      </Card>
    </>
  );
}

type Day = Summary["days"][number];

/** A day of which nothing can be in yet is not one without usage. */
function isKnown(day: Day, until: string | null): boolean {
  return day.requests > 0 || (until !== null && new Date(day.start) < new Date(until));
}

function DayName({ day, until }: { day: Day; until: string | null }) {
  const whole = until !== null && new Date(day.end) <= new Date(until);
  const hours = (Date.parse(day.end) - Date.parse(day.start)) / 3_600_000;
  return (
    <>
      <span className="figures">{dayText(day.day)}</span>
      {hours !== 24 && (
        <Text span size="xs" c="dimmed">
          {" "}
          {hours} hours
        </Text>
      )}
      {!whole && isKnown(day, until) && (
        <Text span size="xs" c="dimmed">
          {" "}
          so far
        </Text>
      )}
    </>
  );
}

/** Of a day without a zone: read and written in the same one. */
function dayText(day: string): string {
  const style = {
    weekday: "short",
    day: "numeric",
    month: "short",
    year: "numeric",
    timeZone: "UTC",
  } as const;
  return new Intl.DateTimeFormat(undefined, style).format(new Date(`${day}T00:00:00Z`));
}

function DayChart({ of }: { of: Summary }) {
  const values = (pick: (day: Day) => number) =>
    of.days.map((day) => (isKnown(day, of.complete_until) ? pick(day) : null));
  const [year = 0, month = 1, date = 1] = of.first.split("-").map(Number);
  const first = new Date(year, month - 1, date, 1).getTime() / 1000; // an hour in, whatever clocks do to days
  return (
    <TimeChart
      title="Tokens by day"
      unit="tokens"
      kind="bars"
      times={of.days.map((_, place) => first + place * 86_400)}
      stepS={86_400}
      stepName={(step) => dayText(of.days[step]?.day ?? of.first)}
      lines={[
        { label: "Input", tone: "main", values: values((day) => day.prompt_tokens - day.cached_tokens) },
        { label: "Cached input", tone: "second", values: values((day) => day.cached_tokens) },
        { label: "Output", tone: "third", values: values((day) => day.completion_tokens) },
      ]}
    />
  );
}

type Usage = Summary["groups"][number];

function GroupName({ group, by, tenant }: { group: Usage; by: Summary["by"]; tenant: Tenant | undefined }) {
  if (group.id === null) {
    return <Text size="sm">The base itself</Text>;
  }
  if (by !== "key") {
    return <Mono>{group.id}</Mono>;
  }
  const name = group.name ?? `mt_${group.id}_…`;
  return tenant?.can.includes("list_keys") ? (
    <Link to="/tenants/$tenant/keys/$key" params={{ tenant: tenant.id, key: group.id }}>
      {name}
    </Link>
  ) : (
    <Text size="sm" title={`mt_${group.id}_…`}>
      {name}
    </Text>
  );
}

function Nothing({ tenant }: { tenant: Tenant | undefined }) {
  return (
    <Empty
      title="Nothing was used in these days"
      command={`curl '${window.location.origin}/v1/chat/completions' -H "authorization: Bearer $MOTET_API_KEY" \\\n  -H 'content-type: application/json' -d '{"model": "ADAPTER", "messages": [{"role": "user", "content": "Hello"}]}'`}
    >
      <Text size="sm">
        What {tenant?.name ?? "the tenant"} asks for with one of its keys stands here within a minute.
      </Text>
    </Empty>
  );
}

/** The zone that is looked at, as the tenant's own. */
function MakeZone({ tenant, zone, onDone }: { tenant: Tenant; zone: string; onDone: () => void }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  if (!tenant.can.includes("change") || zone === tenant.reporting_zone) {
    return null;
  }
  const save = async () => {
    const path = { tenant: tenant.id };
    const { etag } = await tagged(api.GET("/api/v1/tenants/{tenant}", { params: { path } }));
    const header = etag === null ? {} : { "if-match": etag };
    const body = { reporting_zone: zone };
    const answer = await heard(api.PATCH("/api/v1/tenants/{tenant}", { params: { path, header }, body }));
    client.setQueryData(["tenant", tenant.id], answer);
    onDone();
  };
  return (
    <>
      <Button variant="default" onClick={() => setAsking(true)}>
        Make it {tenant.name}'s zone…
      </Button>
      {asking && (
        <Confirm
          title={`Days of ${tenant.name}`}
          effect={`Usage is then counted by days of ${zone}, here and in the API, instead of ${tenant.reporting_zone}. No sum changes, and statements stay months in UTC.`}
          action="Make it so"
          dangerous={false}
          onConfirm={save}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}
