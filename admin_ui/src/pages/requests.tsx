import { Anchor, Badge, Group, Select, Stack, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Duration } from "../parts/duration";
import { Count, countText, Moment } from "../parts/figures";
import { NumberFilter, TextFilter } from "../parts/filters";
import { RangePicker } from "../parts/range";
import type { Range, RangeSearch } from "../parts/range-search";
import { Empty } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import type { RequestsSearch } from "../routes/overview";
import { FindRequest } from "./request-find";
import { useTenant, useTenantId } from "./tenant-data";

type Line = Schemas["RequestLine"];
export type Outcome = Line["outcome"];

const LOOK_MS = 10_000;
const HOURS: Record<Range, number> = { "1h": 1, "6h": 6, "24h": 24, "7d": 168, "30d": 720 };
const COLOURS: Record<Outcome, string> = {
  served: "teal",
  cached: "teal",
  replayed: "teal",
  refused: "orange",
  failed: "red",
  client_left: "gray",
};
export const OUTCOMES = Object.keys(COLOURS) as Outcome[];

const COLUMNS: Column<Line>[] = [
  { title: "When", cell: (line) => <Moment at={line.came_at} /> },
  {
    title: "Request",
    cell: (line) => <RequestLink id={line.id} />,
  },
  { title: "Outcome", cell: (line) => <OutcomeBadge line={line} /> },
  { title: "Because of", cell: (line) => <Text size="sm">{line.refused_by ?? line.error_code ?? ""}</Text> },
  { title: "Model", cell: (line) => <span className="mono figures">{line.model ?? "–"}</span> },
  { title: "Took", end: true, cell: (line) => <Duration ms={line.total_ms} /> },
  {
    title: "In the queue",
    end: true,
    cell: (line) => (line.queue_ms === null ? "–" : <Duration ms={line.queue_ms} />),
  },
  {
    title: "Tokens: input, output",
    end: true,
    cell: (line) => (
      <span className="figures">
        {counted(line.prompt_tokens)}, {counted(line.completion_tokens)}
      </span>
    ),
  },
  { title: "Stands for", end: true, cell: (line) => <Count value={line.stands_for} /> },
];

const counted = (tokens: number | null) => (tokens === null ? "–" : countText(tokens));

function RequestLink({ id }: { id: string }) {
  const tenant = useTenantId();
  return (
    <Anchor component={Link} to={`/tenants/${tenant}/requests/${id}`} className="mono figures">
      {id}
    </Anchor>
  );
}

export function OutcomeBadge({ line }: { line: Line }) {
  return (
    <Badge color={COLOURS[line.outcome]}>
      {line.outcome.replaceAll("_", " ")}
      {line.status !== null && line.status >= 400 ? ` ${line.status}` : ""}
    </Badge>
  );
}

export function RequestsPage() {
  const tenant = useTenantId();
  const found = useTenant();
  const search = useSearch({ from: "/inside/tenants/$tenant/requests" });
  const navigate = useNavigate({ from: "/tenants/$tenant/requests" });
  const filters = {
    outcome: search.outcome ?? null,
    adapter: search.adapter ?? null,
    key: search.key ?? null,
    code: search.code ?? null,
    slow_ms: search.slow_ms ?? null,
  };
  const rows = useQuery({
    queryKey: ["tenant", tenant, "requests", search],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/requests", {
          params: {
            path: { tenant },
            query: { ...filters, ...timesOf(search), limit: 50, cursor: search.cursor ?? null },
          },
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: search.cursor === undefined && search.since === undefined ? LOOK_MS : false,
  });
  const filter = (next: Partial<RequestsSearch>, replace = true) =>
    void navigate({
      search: (before) => ({ ...before, ...next, cursor: undefined }),
      replace,
      resetScroll: false,
    });
  const filtered = Object.values(filters).some((value) => value !== null);
  return (
    <Stack gap="sm">
      <Group justify="space-between" align="end">
        <FindRequest tenant={tenant} />
        <RangePicker
          search={{ ...search, range: search.range ?? "24h" }}
          onChange={(next: RangeSearch) => filter(next, false)}
        />
      </Group>
      <Group align="end" gap="sm">
        <Select
          label="Outcome"
          placeholder="Any"
          clearable
          clearButtonProps={{ "aria-label": "Any outcome" }}
          data={OUTCOMES.map((value) => ({ value, label: value.replaceAll("_", " ") }))}
          value={search.outcome ?? null}
          onChange={(outcome) => filter({ outcome: (outcome as Outcome | null) ?? undefined })}
          w={{ base: "100%", xs: 150 }}
        />
        <TextFilter label="Adapter" value={search.adapter} onChange={(adapter) => filter({ adapter })} />
        <TextFilter label="Id of its key" value={search.key} onChange={(key) => filter({ key })} />
        <TextFilter
          label="Error's code"
          placeholder="rate_limit_exceeded"
          value={search.code}
          onChange={(code) => filter({ code })}
        />
        <NumberFilter
          label="Took at least, ms"
          value={search.slow_ms}
          onChange={(slow_ms) => filter({ slow_ms })}
        />
      </Group>
      <DataTable
        caption="Requests, newest first"
        columns={COLUMNS}
        rows={rows}
        rowKey={(line) => line.id}
        cursor={search.cursor}
        empty={
          filtered ? (
            <Empty title="No request is like this" />
          ) : (
            <Empty
              title="There was no request in this time"
              command={`motet requests list --tenant ${found.data?.name ?? "TENANT"}`}
            />
          )
        }
      />
    </Stack>
  );
}

/** The list's own default is 24 hours. */
function timesOf(search: RequestsSearch) {
  if (search.since !== undefined) {
    return { since: search.since, until: search.until ?? null };
  }
  const hours = HOURS[search.range ?? "24h"];
  return { since: new Date(Date.now() - hours * 3_600_000).toISOString(), until: null };
}
