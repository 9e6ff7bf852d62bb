import { Anchor, Button, Group, Modal, NumberInput, Slider, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { api, tagged } from "../api/client";
import { ConflictNotice, type Edit, SaveBar, type Saved, useEdit } from "../parts/edits";
import { Failed, Read } from "../parts/states";
import { useAdapterPath } from "./adapter-data";
import {
  type Alias,
  moved,
  useAdapterChanged,
  useAdapterKey,
  versionsOf,
  type Weights,
  weightsText,
  withWeight,
} from "./alias-data";
import { VersionSelect } from "./version-select";

const MOST_VERSIONS = 5;

interface AliasValues extends Record<string, unknown> {
  weights: Weights;
}

const valuesOf = (found: Record<string, unknown>): AliasValues => ({ weights: found.weights as Weights });

export function MoveAlias({ alias, onClose }: { alias: string; onClose: () => void }) {
  const path = useAdapterPath();
  const params = { path: { ...path, alias } };
  const read = useQuery({
    queryKey: [...useAdapterKey(), "alias", alias, "edit"],
    queryFn: () => tagged(api.GET("/api/v1/tenants/{tenant}/adapters/{name}/aliases/{alias}", { params })),
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  return (
    <Modal opened onClose={onClose} title={`Where ${path.name}@${alias} points`} size="lg">
      <Read of={read} what="the alias">
        {({ data, etag }) =>
          data.can.includes("move") ? (
            <MoveForm found={data} etag={etag} />
          ) : (
            <NotNow found={data} path={path} />
          )
        }
      </Read>
    </Modal>
  );
}

function NotNow({ found, path }: { found: Alias; path: { tenant: string; name: string } }) {
  if (found.rollout === null) {
    return <Text size="sm">{`It points to ${weightsText(found.weights)}. You may not move it.`}</Text>;
  }
  return (
    <Text size="sm">
      {`It points to ${weightsText(found.weights)}. A rollout steps it: `}
      <Anchor component={Link} to={`/tenants/${path.tenant}/adapters/${path.name}/rollouts/${found.rollout}`}>
        promote it or roll it back first
      </Anchor>
      .
    </Text>
  );
}

function MoveForm({ found, etag }: { found: Alias; etag: string | null }) {
  const path = useAdapterPath();
  const changed = useAdapterChanged();
  const [added, setAdded] = useState<string[]>([]);
  const edit = useEdit<AliasValues>(
    { values: valuesOf({ ...found }), etag },
    async (patch, tag): Promise<Saved<AliasValues>> => {
      const params = {
        path: { ...path, alias: found.alias },
        header: tag === null ? {} : { "if-match": tag },
      };
      const answer = await tagged(
        api.PUT("/api/v1/tenants/{tenant}/adapters/{name}/aliases/{alias}", {
          params,
          body: { weights: patch.weights ?? null },
        }),
      );
      await changed();
      return { values: valuesOf({ ...answer.data }), etag: answer.etag };
    },
    valuesOf,
  );
  const rows = versionsOf({ ...found.weights, ...edit.values.weights, ...zeros(added) });
  const set = (version: string, percent: number) => {
    setAdded(rows); // what falls to none stays in its row, to be taken up again
    edit.set("weights", withWeight(edit.values.weights, rows, version, percent));
  };
  return (
    <Stack>
      <ConflictNotice edit={edit} shown={(value) => weightsText((value ?? {}) as Weights)} />
      {rows.map((version) => (
        <Part
          key={version}
          version={version}
          percent={edit.values.weights[version] ?? 0}
          alone={rows.length === 1}
          onChange={(percent) => set(version, percent)}
        />
      ))}
      {rows.length < MOST_VERSIONS && (
        <VersionSelect
          label="Add a version"
          value={null}
          without={rows.map(Number)}
          onChange={(version) => version !== null && setAdded([...rows, String(version)])}
        />
      )}
      <Effect edit={edit} before={found.weights} name={found.id} />
      {edit.failure !== null && <Failed error={edit.failure} />}
      <SaveBar edit={edit} />
    </Stack>
  );
}

function zeros(versions: string[]): Weights {
  return Object.fromEntries(versions.map((version) => [version, 0]));
}

interface PartProps {
  version: string;
  percent: number;
  alone: boolean;
  onChange: (percent: number) => void;
}

function Part({ version, percent, alone, onChange }: PartProps) {
  const [typed, setTyped] = useState<number | string>(percent);
  useEffect(() => setTyped(percent), [percent]);
  return (
    <Group wrap="nowrap" align="center" gap="md">
      <Slider
        flex={1}
        min={0}
        max={100}
        step={1}
        size="lg"
        thumbSize={24}
        label={null}
        disabled={alone}
        thumbLabel={`Share of version ${version}`}
        value={percent}
        onChange={onChange}
      />
      <NumberInput
        label={`Version ${version}`}
        w={120}
        min={0}
        max={100}
        clampBehavior="strict"
        allowDecimal={false}
        allowNegative={false}
        suffix={"\u00a0%"}
        disabled={alone}
        value={typed}
        onBlur={() => setTyped(percent)}
        onChange={(value) => {
          setTyped(value);
          if (typeof value === "number" && value !== percent) {
            onChange(value);
          }
        }}
      />
      <Button
        size="xs"
        variant="default"
        disabled={percent === 100}
        onClick={() => onChange(100)}
        aria-label={`All to version ${version}`}
      >
        All
      </Button>
    </Group>
  );
}

function Effect({ edit, before, name }: { edit: Edit<AliasValues>; before: Weights; name: string }) {
  const { weights } = edit.values;
  const share = moved(before, weights);
  const text =
    share === 0
      ? `${name} points to ${weightsText(weights)}.`
      : `From the next request on, ${name} is ${weightsText(weights)}: ${share}\u00a0% of its conversations change their version, all others stay with theirs. What runs ends where it began.`;
  return (
    <Text size="sm" aria-live="polite">
      {text}
    </Text>
  );
}
