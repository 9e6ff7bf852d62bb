import { MultiSelect, TextInput } from "@mantine/core";
import type { Schemas } from "../api/client";
import type { Failure } from "../api/failure";

type Kind = NonNullable<NonNullable<Schemas["EndpointIn"]["kinds"]>>[number];

export interface HookValues extends Record<string, unknown> {
  url: string;
  description: string;
  kinds: Kind[] | null;
}

const KINDS: Record<Kind, string> = {
  "adapter.alias_changed": "adapter.alias_changed: an alias moved",
  "adapter.share_changed": "adapter.share_changed: a share began, changed or ended",
  "adapter.state_changed": "adapter.state_changed: ready, rejected, retired, purged, lost",
  "budget.threshold": "budget.threshold: a part of a budget is spent",
  "export.failed": "export.failed: an export was not made",
  "export.ready": "export.ready: an export can be fetched",
  "key.created": "key.created",
  "key.revoked": "key.revoked",
  "key.rotated": "key.rotated",
  "rollout.changed": "rollout.changed: a step, a pause, a rollback",
};

export function hookValues(found: Record<string, unknown>): HookValues {
  return {
    url: (found.url as string | null) ?? "",
    description: String(found.description),
    kinds: (found.kinds as Kind[] | null) ?? null,
  };
}

interface Props {
  values: HookValues;
  set: <Name extends keyof HookValues>(name: Name, value: HookValues[Name]) => void;
  failure: Failure | null;
  disabled?: boolean;
}

export function HookFields({ values, set, failure, disabled = false }: Props) {
  const error = (name: string) => (failure?.param?.startsWith(name) ? failure.message : null);
  return (
    <>
      <TextInput
        label="URL"
        description="https, on the public internet, unless your operator lets in more"
        placeholder="https://hooks.example.com/motet"
        type="url"
        required
        withAsterisk={false}
        disabled={disabled}
        error={error("url")}
        value={values.url}
        onChange={(event) => set("url", event.currentTarget.value)}
      />
      <MultiSelect
        label="Told of"
        description="None for everything, also what is added later"
        data={Object.entries(KINDS).map(([value, label]) => ({ value, label }))}
        disabled={disabled}
        error={error("kinds")}
        value={values.kinds ?? []}
        onChange={(kinds) => set("kinds", kinds.length === 0 ? null : (kinds as Kind[]))}
      />
      <TextInput
        label="Description"
        maxLength={200}
        disabled={disabled}
        error={error("description")}
        value={values.description}
        onChange={(event) => set("description", event.currentTarget.value)}
      />
    </>
  );
}
