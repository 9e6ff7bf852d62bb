import { Select } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard } from "../api/client";

const WAIT_MS = 200;

/** Any tenant that the session sees, found by the server by what its name begins with. */
export function TenantSwitcher() {
  const navigate = useNavigate();
  const { tenant } = useParams({ strict: false });
  const [typed, setTyped] = useState("");
  const [prefix] = useDebouncedValue(typed, WAIT_MS);
  const current = useQuery({
    queryKey: ["tenant", tenant],
    queryFn: async () =>
      heard(api.GET("/api/v1/tenants/{tenant}", { params: { path: { tenant: tenant ?? "" } } })),
    enabled: tenant !== undefined,
  });
  const wanted = prefix === current.data?.name ? "" : prefix; // what stands in the field is no search
  const found = useQuery({
    queryKey: ["tenants", "switch", wanted],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants", { params: { query: { limit: 20, name_prefix: wanted || null } } })),
    placeholderData: keepPreviousData,
  });
  const options = (found.data?.data ?? []).map((one) => ({ value: one.id, label: one.name }));
  if (current.data !== undefined && !options.some((one) => one.value === current.data.id)) {
    options.unshift({ value: current.data.id, label: current.data.name });
  }
  return (
    <Select
      aria-label="Tenant"
      placeholder="Choose a tenant"
      searchable
      data={options}
      value={tenant ?? null}
      filter={({ options: all }) => all}
      onSearchChange={setTyped}
      onChange={(id) => id !== null && void navigate({ to: "/tenants/$tenant", params: { tenant: id } })}
      nothingFoundMessage="No tenant begins with this."
      w={{ base: 160, xs: 220 }}
      comboboxProps={{ width: 260, position: "bottom-start" }}
    />
  );
}
