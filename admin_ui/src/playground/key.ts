/** The key that the playground asks with. Its secret is in a variable of the page that is open and nowhere else. */
import { useCallback, useEffect, useRef, useState } from "react";
import { api, heard } from "../api/client";
import { Failure } from "../api/failure";
import { prefix } from "../place";
import { beforeLogOut, currentCsrf } from "../session/door";

const LIVES_MS = 60 * 60_000;
const SPARE_MS = 2 * 60_000; // one that ends so soon is not begun with
const PUBLIC_PART = /^mt_([A-Za-z0-9]+)_[^\s_]+$/;

interface Held {
  secret: string;
  shown: ShownKey;
}

interface ShownKey {
  id: string; // the public part
  endsAt: number | null; // null: it was pasted, and ends when it ends
}

export interface KeyInHand {
  shown: ShownKey | null;
  /** The secret; makes a key when there is none. Throws a `Failure`. */
  take: () => Promise<string>;
  paste: (secret: string) => void;
  drop: () => void;
}

export function publicPart(secret: string): string | null {
  return PUBLIC_PART.exec(secret)?.[1] ?? null;
}

/** What was made is revoked when the page is left, by whatever way the browser still lets it say so; and ends by
 * itself within the hour. */
export function useKey(tenant: string): KeyInHand {
  const held = useRef<Held | null>(null);
  const making = useRef<Promise<string> | null>(null);
  const left = useRef(false);
  const [shown, setShown] = useState<ShownKey | null>(null);

  const hold = useCallback(
    (next: Held | null) => {
      const before = held.current;
      held.current = next;
      setShown(next?.shown ?? null);
      return before === null || before.shown.endsAt === null ? null : revoke(tenant, before.shown.id);
    },
    [tenant],
  );

  useEffect(() => {
    left.current = false;
    const leave = () => void hold(null);
    const forget = beforeLogOut(async () => hold(null));
    window.addEventListener("pagehide", leave);
    return () => {
      forget();
      window.removeEventListener("pagehide", leave);
      left.current = true;
      leave();
    };
  }, [hold]);

  const make = async () => {
    const endsAt = Date.now() + LIVES_MS;
    const made = await heard(
      api.POST("/api/v1/tenants/{tenant}/keys", {
        params: { path: { tenant } },
        body: {
          name: "playground",
          scopes: ["inference"],
          service_class: "standard", // what a program gets
          expires_at: new Date(endsAt).toISOString(),
          max_parallel: 4,
        },
      }),
    );
    if (left.current) {
      await revoke(tenant, made.key.id); // the page was left while it was made
      throw new Failure(0, { detail: "The page was left." });
    }
    void hold({ secret: made.secret, shown: { id: made.key.id, endsAt } });
    if (left.current) {
      void hold(null); // it was left while the key was made
    }
    return made.secret;
  };

  const take = async () => {
    const now = held.current;
    if (now !== null && (now.shown.endsAt ?? Number.POSITIVE_INFINITY) > Date.now() + SPARE_MS) {
      return now.secret;
    }
    making.current ??= make().finally(() => {
      making.current = null;
    });
    return making.current;
  };

  return {
    shown,
    take,
    paste: (secret) => void hold({ secret, shown: { id: publicPart(secret) ?? "", endsAt: null } }),
    drop: () => void hold(null),
  };
}

/** Outlives the page; a session that has ended can't, and then the key ends with its hour. */
async function revoke(tenant: string, id: string): Promise<void> {
  await fetch(`${prefix}/api/v1/tenants/${tenant}/keys/${id}`, {
    method: "DELETE",
    headers: { "x-csrf-token": currentCsrf() },
    keepalive: true,
  }).catch(() => {});
}
