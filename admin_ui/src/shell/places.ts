import type { IconName } from "../parts/icons";
import type { Session } from "../session/door";

export interface Place {
  to:
    | "/overview"
    | "/tenants"
    | "/billing"
    | "/placement"
    | "/replicas"
    | "/pools"
    | "/bases"
    | "/audit"
    | "/settings";
  label: string;
  icon: IconName;
}

interface Entry extends Place {
  needs: Session["can"][number];
}

const ALL: Entry[] = [
  { to: "/overview", label: "Overview", icon: "overview", needs: "read_attention" },
  { to: "/tenants", label: "Tenants", icon: "tenants", needs: "list_tenants" },
  { to: "/billing", label: "Billing", icon: "billing", needs: "list_billing_periods" },
  { to: "/placement", label: "Placement", icon: "placement", needs: "read_placement" },
  { to: "/replicas", label: "Replicas", icon: "replicas", needs: "list_replicas" },
  { to: "/pools", label: "Pools", icon: "pools", needs: "read_pool_rules" },
  { to: "/bases", label: "Bases", icon: "bases", needs: "list_bases" },
  { to: "/audit", label: "Audit", icon: "audit", needs: "read_audit" },
  { to: "/settings", label: "Settings", icon: "settings", needs: "list_tenants" },
];

/** What the session may open. */
export function places(session: Session): Place[] {
  return ALL.filter((place) => session.can.includes(place.needs));
}
