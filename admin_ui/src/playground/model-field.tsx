import { Autocomplete } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, heard, type Schemas } from "../api/client";

const SHOWN = 30;
const LATEST = 5; // versions that are offered; any other is typed

/** All that the tenant's keys may name: the base, its own, and those shared with it. */
export function useModels(tenant: string) {
  return useQuery({
    queryKey: ["tenant", tenant, "models"],
    queryFn: () => heard(api.GET("/api/v1/tenants/{tenant}/models", { params: { path: { tenant } } })),
  });
}

interface Props {
  tenant: string;
  label: string;
  models: Schemas["ModelOut"][];
  value: string;
  onChange: (model: string) => void;
}

/** Offers what there is; takes whatever the API takes: `[owner/]name[@version|@alias]`. */
export function ModelField({ tenant, label, models, value, onChange }: Props) {
  const bare = value.split("@", 1)[0] ?? "";
  const own = models.some((model) => model.id === bare && model.parent !== null) && !bare.includes("/");
  const adapter = useQuery({
    queryKey: ["tenant", tenant, "adapter", bare],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/adapters/{name}", {
          params: { path: { tenant, name: bare }, query: { state: "any" } }, // as its own page, which shares it
        }),
      ),
    enabled: own,
    placeholderData: keepPreviousData,
  });
  const names = models.map((model) => model.id);
  const parts = own && adapter.data?.name === bare ? partsOf(adapter.data) : [];
  return (
    <Autocomplete
      label={label}
      description="Also name@version and name@alias"
      placeholder="name, name@3, owner/name"
      data={[...new Set([...parts, ...names])]}
      limit={SHOWN}
      value={value}
      onChange={onChange}
      spellCheck={false}
      maxLength={192}
      comboboxProps={{ position: "bottom-start" }}
    />
  );
}

function partsOf(adapter: Schemas["AdapterOut"]): string[] {
  const versions = Array.from({ length: Math.min(adapter.latest, LATEST) }, (_, n) => adapter.latest - n);
  const after = [...Object.keys(adapter.aliases), ...versions.map(String)];
  return [adapter.name, ...after.map((part) => `${adapter.name}@${part}`)];
}
