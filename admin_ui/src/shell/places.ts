import type { IconName } from "../parts/icons";
import type { Session } from "../session/door";

export interface Place {
  to: "/tenants" | "/replicas" | "/audit" | "/settings";
  label: string;
  icon: IconName;
}

interface Entry extends Place {
  needs: Session["can"][number];
}

const ALL: Entry[] = [
  { to: "/tenants", label: "Tenants", icon: "tenants", needs: "list_tenants" },
  { to: "/replicas", label: "Replicas", icon: "replicas", needs: "list_replicas" },
  { to: "/audit", label: "Audit", icon: "audit", needs: "read_audit" },
  { to: "/settings", label: "Settings", icon: "settings", needs: "list_tenants" },
];

/** What the session may open. */
export function places(session: Session): Place[] {
  return ALL.filter((place) => session.can.includes(place.needs));
}
