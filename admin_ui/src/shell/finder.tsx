import { useDebouncedValue } from "@mantine/hooks";
import { Spotlight, type SpotlightActionData } from "@mantine/spotlight";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard } from "../api/client";
import { Icon, type IconName } from "../parts/icons";
import type { Session } from "../session/door";
import { places } from "./places";
import { requestIdIn } from "./request-id";

const WAIT_MS = 150;
const EACH = 5;

/** Ctrl K, or ⌘K: to any page, to any tenant by what its name begins with, and, of the tenant that is open, to an
 * adapter by its name and a key by its name or its public part; and to a request by its id. */
export function Finder({ session }: { session: Session }) {
  const navigate = useNavigate();
  const { tenant } = useParams({ strict: false });
  const [typed, setTyped] = useState("");
  const [text] = useDebouncedValue(withoutSecret(typed.trim()), WAIT_MS);
  const prefix = text.toLowerCase();
  const inTenant = useInTenant(tenant, text);
  const tenants = useQuery({
    queryKey: ["tenants", "find", prefix],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants", { params: { query: { limit: 8, name_prefix: prefix } } })),
    enabled: prefix !== "",
    placeholderData: keepPreviousData,
  });
  const request = session.can.includes("find_request") ? requestIdIn(typed) : undefined;
  const actions: SpotlightActionData[] = [
    ...(request === undefined
      ? []
      : [
          {
            id: request,
            label: `Request ${request}`,
            description: "Why it was refused or slow",
            leftSection: <Icon name="request" />,
            onClick: () => void navigate({ to: "/requests/$request", params: { request } }),
          },
        ]),
    ...places(session)
      .filter((place) => place.label.toLowerCase().includes(prefix))
      .map((place) => ({
        id: place.to,
        label: place.label,
        description: "Page",
        leftSection: <Icon name={place.icon} />,
        onClick: () => void navigate({ to: place.to }),
      })),
    ...(prefix === "" ? [] : (tenants.data?.data ?? [])).map((tenant) => ({
      id: tenant.id,
      label: tenant.name,
      description: "Tenant",
      leftSection: <Icon name="tenants" />,
      onClick: () => void navigate({ to: "/tenants/$tenant", params: { tenant: tenant.id } }),
    })),
    ...inTenant.map((found) => ({
      id: found.id,
      label: found.label,
      description: found.kind,
      leftSection: <Icon name={found.icon} />,
      onClick: () => void navigate({ to: found.to }),
    })),
  ];
  return (
    <Spotlight
      actions={actions}
      query={typed}
      onQueryChange={setTyped}
      filter={(_, all) => all}
      shortcut={["mod + K"]}
      nothingFound="Nothing begins with this."
      searchProps={{
        placeholder: "A page, tenant, adapter, key or request",
        "aria-label": "Find",
        leftSection: <Icon name="search" />,
      }}
    />
  );
}

interface FoundThing {
  id: string;
  kind: string;
  label: string;
  icon: IconName;
  to: string;
}

/** Who pastes a whole key means its public part; the rest goes nowhere. */
function withoutSecret(typed: string): string {
  return /^mt_([A-Za-z0-9]*)/.exec(typed)?.[1] ?? typed;
}

function useInTenant(tenant: string | undefined, text: string): FoundThing[] {
  const may = useQuery({
    queryKey: ["tenant", tenant],
    queryFn: () => heard(api.GET("/api/v1/tenants/{tenant}", { params: { path: { tenant: tenant ?? "" } } })),
    enabled: tenant !== undefined,
  });
  const found = useQuery({
    queryKey: ["tenant", tenant, "find", text],
    queryFn: async (): Promise<FoundThing[]> => {
      const path = { tenant: tenant ?? "" };
      const can = may.data?.can ?? [];
      const keys = (query: { name_prefix: string } | { id_prefix: string }) =>
        can.includes("list_keys")
          ? heard(
              api.GET("/api/v1/tenants/{tenant}/keys", {
                params: { path, query: { ...query, limit: EACH } },
              }),
            )
          : Promise.resolve({ data: [] });
      const query = { name_prefix: text.toLowerCase(), limit: EACH };
      const adapters = can.includes("list_adapters")
        ? heard(api.GET("/api/v1/tenants/{tenant}/adapters", { params: { path, query } }))
        : Promise.resolve({ data: [] });
      const all = await Promise.all([adapters, keys({ name_prefix: text }), keys({ id_prefix: text })]);
      const ofKeys = new Map([...all[1].data, ...all[2].data].map((key) => [key.id, key]));
      return [
        ...all[0].data.map((adapter) => ({
          id: `adapter ${adapter.name}`,
          kind: "Adapter",
          label: adapter.name,
          icon: "adapter" as const,
          to: `/tenants/${path.tenant}/adapters/${adapter.name}`,
        })),
        ...[...ofKeys.values()].map((key) => ({
          id: `key ${key.id}`,
          kind: `Key mt_${key.id}_…`,
          label: key.name,
          icon: "key" as const,
          to: `/tenants/${path.tenant}/keys/${key.id}`,
        })),
      ];
    },
    enabled: tenant !== undefined && text !== "" && may.data !== undefined,
    placeholderData: keepPreviousData,
  });
  return text === "" ? [] : (found.data ?? []);
}
