import { Alert, Button, Group, Stack, Switch, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Empty, Read } from "../parts/states";
import type { DiffSearch } from "../routes/rollouts";
import { useAdapter, useAdapterPath } from "./adapter-data";
import { useAdapterKey, useReadyVersions } from "./alias-data";
import { AnswersBesides, FieldsBesides, ModulesBesides } from "./diff-tables";
import { VersionSelect } from "./version-select";

export type Diff = Schemas["DiffOut"];

export function AdapterDiff() {
  const path = useAdapterPath();
  const search = useSearch({ from: "/inside/tenants/$tenant/adapters/$name/diff" });
  const navigate = useNavigate({ from: "/tenants/$tenant/adapters/$name/diff" });
  const ready = useReadyVersions();
  const [number, other] = useTwo(search);
  const choose = (next: Partial<DiffSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...next }), replace: true, resetScroll: false });
  const read = useQuery({
    queryKey: [...useAdapterKey(), "diff", number, other],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/adapters/{name}/versions/{number}/diff/{other}", {
          params: { path: { ...path, number: number ?? 0, other: other ?? 0 } },
        }),
      ),
    enabled: number !== null && other !== null,
    placeholderData: keepPreviousData,
  });
  return (
    <Stack>
      <Group align="end" gap="sm">
        <VersionSelect label="Old" value={number} onChange={(old) => choose({ old: old ?? undefined })} />
        <VersionSelect label="New" value={other} onChange={(to) => choose({ new: to ?? undefined })} />
        <Button
          variant="default"
          onClick={() => choose({ old: other ?? undefined, new: number ?? undefined })}
          disabled={number === null || other === null}
        >
          Swap
        </Button>
        <Switch
          label="Also what is the same"
          checked={search.all ?? false}
          onChange={(event) => choose({ all: event.currentTarget.checked || undefined })}
          mb={8}
        />
      </Group>
      {number === null || other === null ? (
        <Read of={ready} what="the versions">
          {() => (
            <Empty
              title="There is one version only, and nothing to compare it with"
              command={`motet adapters upload ./my-adapter --name ${path.name}`}
            />
          )}
        </Read>
      ) : (
        <Read of={read} what="the difference">
          {(diff) => <Whole diff={diff} all={search.all ?? false} waiting={read.isPlaceholderData} />}
        </Read>
      )}
    </Stack>
  );
}

/** Those of the address; else what live points to, beside the newest one that is another. */
function useTwo(search: DiffSearch): [number | null, number | null] {
  const adapter = useAdapter();
  const ready = useReadyVersions();
  const numbers = ready.data?.numbers ?? [];
  const live = adapter.data?.aliases.live ?? numbers[1] ?? null;
  const old = search.old ?? live;
  return [old, search.new ?? numbers.find((number) => number !== old) ?? null];
}

function Whole({ diff, all, waiting }: { diff: Diff; all: boolean; waiting: boolean }) {
  const num = [diff.fields, diff.modules, diff.answers].map(
    (rows: { changed: boolean }[]) => rows.filter((row) => row.changed).length,
  );
  return (
    <Stack className={waiting ? "waiting" : ""} aria-busy={waiting}>
      <Text size="sm" role="status">
        {diff.same_content
          ? "Both have the same config and tensors."
          : `${num[0]} of ${diff.fields.length} fields, ${num[1]} of ${diff.modules.length} modules and ${num[2]} of ${diff.answers.length} acceptance answers differ.`}
      </Text>
      {diff.without_report.map((version) => (
        <Alert key={version} color="yellow" p="xs" role="note">
          {`Version ${version} is from before reports were kept: what is in its files is not known.`}
        </Alert>
      ))}
      <Section title="Config, weights, sizes and proof">
        <FieldsBesides diff={diff} all={all} />
      </Section>
      <Section title="Modules">
        <ModulesBesides diff={diff} all={all} />
      </Section>
      <Section title="Answers to acceptance prompts">
        <AnswersBesides diff={diff} all={all} />
      </Section>
    </Stack>
  );
}

function Section({ title, children }: { title: string; children: React.ReactNode }) {
  return (
    <section aria-label={title}>
      <Title order={2} size="h4" mb="xs">
        {title}
      </Title>
      {children}
    </section>
  );
}
