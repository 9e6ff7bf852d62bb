import { Badge } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useEffect, useSyncExternalStore } from "react";
import { useSession } from "../session/hooks";
import { type Change, follow } from "./feed";
import { Freshening } from "./fresh";

let live = false;
let followed = false; // by a stream before: of another session, or of another tenant
const listeners = new Set<() => void>();

function setLive(is: boolean): void {
  if (live !== is) {
    live = is;
    for (const listener of listeners) {
      listener();
    }
  }
}

function useLive(): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => live,
  );
}

/** For `refetchInterval` of what changes are told of: it is asked for so often only while none are heard. */
export function useLook(ms: number): number | false {
  return useLive() ? false : ms;
}

/** The one subscription of the page: of everything, where the session may; else of the tenant that is shown. */
export function LiveUpdates(): null {
  const session = useSession();
  const queries = useQueryClient();
  const { tenant } = useParams({ strict: false });
  const path = pathOf(session.can.includes("follow_changes"), tenant);
  const asks = session.must_change_password ? null : path;
  const login = session.csrf_token; // another one is another session
  useEffect(() => {
    if (asks === null || login === "") {
      return;
    }
    const freshening = new Freshening(queries);
    const listener = {
      onChange: (change: Change) => freshening.take(change),
      onMissed: () => freshening.all(),
      onLive: setLive,
    };
    const stop = follow(asks, listener, followed);
    followed = true;
    return () => {
      stop();
      freshening.stop();
    };
  }, [asks, login, queries]);
  return null;
}

function pathOf(all: boolean, tenant: string | undefined): string | null {
  if (all) {
    return "/api/v1/changes";
  }
  return tenant === undefined ? null : `/api/v1/tenants/${tenant}/changes`;
}

/** Whether what is shown follows what happens. */
export function LiveBadge() {
  const is = useLive();
  return (
    <Badge color={is ? "teal" : "gray"} role="status">
      {is ? "live" : "looks every few seconds"}
    </Badge>
  );
}
