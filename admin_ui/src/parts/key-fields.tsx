import { MultiSelect, Select, TagsInput, TextInput } from "@mantine/core";
import type { Schemas } from "../api/client";
import type { Failure } from "../api/failure";
import { localMinute, momentOfField } from "./local-minute";

type Scope = Schemas["Scope"];
type ServiceClass = "interactive" | "standard" | "batch";

export interface KeyValues extends Record<string, unknown> {
  name: string;
  scopes: Scope[];
  allowed_models: string[] | null;
  allowed_networks: string[] | null;
  service_class: ServiceClass;
  expires_at: string | null;
}

const SCOPES: Record<Scope, string> = {
  inference: "inference: answer requests",
  "adapters:read": "adapters:read: look at adapters",
  "adapters:write": "adapters:write: upload and delete them",
  "usage:read": "usage:read: usage, billing, requests",
  webhooks: "webhooks: set up where events go",
  "keys:write": "keys:write: keys that can do no more than this one",
};

export function keyValues(found: Record<string, unknown>): KeyValues {
  return {
    name: String(found.name),
    scopes: found.scopes as Scope[],
    allowed_models: (found.allowed_models as string[] | null) ?? null,
    allowed_networks: (found.allowed_networks as string[] | null) ?? null,
    service_class: found.service_class as ServiceClass,
    expires_at: (found.expires_at as string | null) ?? null,
  };
}

interface Props {
  values: KeyValues;
  set: <Name extends keyof KeyValues>(name: Name, value: KeyValues[Name]) => void;
  failure: Failure | null;
  disabled?: boolean;
}

export function KeyFields({ values, set, failure, disabled = false }: Props) {
  const error = (name: string) => (failure?.param?.startsWith(name) ? failure.message : null);
  return (
    <>
      <TextInput
        label="Name"
        maxLength={100}
        required
        withAsterisk={false}
        disabled={disabled}
        error={error("name")}
        value={values.name}
        onChange={(event) => set("name", event.currentTarget.value)}
      />
      <MultiSelect
        label="May"
        data={Object.entries(SCOPES).map(([value, label]) => ({ value, label }))}
        disabled={disabled}
        error={error("scopes")}
        value={values.scopes}
        onChange={(scopes) => set("scopes", scopes as Scope[])}
      />
      <TagsInput
        label="Models"
        description="Bare names of adapters, or the base's; none for all that the tenant sees"
        disabled={disabled}
        error={error("allowed_models")}
        value={values.allowed_models ?? []}
        onChange={(models) => set("allowed_models", models.length === 0 ? null : models)}
      />
      <TagsInput
        label="Networks"
        description="192.0.2.1, 2001:db8::/32; none for anywhere"
        disabled={disabled}
        error={error("allowed_networks")}
        value={values.allowed_networks ?? []}
        onChange={(networks) => set("allowed_networks", networks.length === 0 ? null : networks)}
      />
      <Select
        label="Service class"
        description="How urgent its requests are"
        data={["interactive", "standard", "batch"]}
        allowDeselect={false}
        disabled={disabled}
        error={error("service_class")}
        value={values.service_class}
        onChange={(chosen) => chosen !== null && set("service_class", chosen as ServiceClass)}
      />
      <TextInput
        label="Expires"
        description="In your own time zone; empty for never"
        type="datetime-local"
        disabled={disabled}
        error={error("expires_at")}
        value={localMinute(values.expires_at)}
        onChange={(event) => set("expires_at", momentOfField(event.currentTarget.value))}
      />
    </>
  );
}
