import { useDebouncedValue } from "@mantine/hooks";
import { Spotlight, type SpotlightActionData } from "@mantine/spotlight";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, heard } from "../api/client";
import { Icon } from "../parts/icons";
import type { Session } from "../session/door";
import { places } from "./places";
import { requestIdIn } from "./request-id";

const WAIT_MS = 150;

/** Ctrl K, or ⌘K: to any page, to any tenant by what its name begins with, and to a request by its id. */
export function Finder({ session }: { session: Session }) {
  const navigate = useNavigate();
  const [typed, setTyped] = useState("");
  const [prefix] = useDebouncedValue(typed.trim().toLowerCase(), WAIT_MS);
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
        placeholder: "A page, a tenant, or a request's id",
        "aria-label": "Find",
        leftSection: <Icon name="search" />,
      }}
    />
  );
}
