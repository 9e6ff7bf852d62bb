import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { type Failure, failureOf } from "../api/failure";
import { useUnsaved } from "../parts/edits";
import type { Begun, Named, Sender, Told } from "./sender";

const TOLD_MS = 250;
const LEAST_MEASURED = 64 * 1024; // bytes that tell a rate
const PAUSE_MS = 2_000;
const MOST_TRIES = 60;
const REFUSED = [400, 404, 413, 422];

type Version = Schemas["VersionOut"];

export interface Sending {
  step: "sending";
  sent: number;
  total: number;
  /** Bytes a second, of the last seconds; null: not known yet. */
  rate: number | null;
  standing: string | null;
}

/** What becomes of files: on their way, made into a version, which is then followed, or refused. */
export type Course =
  | { step: "idle" }
  | Sending
  | { step: "making"; standing: string | null }
  | { step: "made"; version: Version; before: boolean }
  | { step: "failed"; failure: Failure };

export interface Wanted {
  name: string;
  alias: string;
  files: Named[];
  begun: Begun[];
}

export interface Uploading {
  course: Course;
  begin: (wanted: Wanted) => Promise<void>;
  /** What was sent stays at the gateway, and is gone on with. */
  pause: () => Promise<void>;
  reset: () => void;
}

export function useUploading(tenant: string): Uploading {
  const [course, setCourse] = useState<Course>({ step: "idle" });
  const sender = useRef<Sender | null>(null);
  const client = useQueryClient();
  useUnsaved(isRunning(course));
  useEffect(() => () => void sender.current?.stop(), []);

  const begin = async ({ name, alias, files, begun }: Wanted) => {
    const { forget, Sender, Stopped } = await import("./sender");
    const total = files.reduce((sum, { file }) => sum + file.size, 0);
    const watch = watching(total, setCourse);
    sender.current = new Sender(tenant, watch);
    try {
      const ids = await sender.current.send(files, begun);
      const made = await make(tenant, name, alias, ids, setCourse);
      await forget(tenant, files);
      setCourse({ step: "made", ...made });
    } catch (error) {
      if (error instanceof Stopped) {
        setCourse({ step: "idle" });
        return;
      }
      const failure = failureOf(error);
      if (REFUSED.includes(failure.status) || failure.code === "upload_taken") {
        await forget(tenant, files); // the gateway keeps nothing of what it refused
      }
      setCourse({ step: "failed", failure });
    } finally {
      sender.current = null;
      await client.invalidateQueries({ queryKey: ["tenant", tenant, "uploads"] });
      await client.invalidateQueries({ queryKey: ["tenant", tenant, "adapters"] });
      await client.invalidateQueries({ queryKey: ["tenant", tenant, "adapter", name] });
    }
  };

  const pause = async () => sender.current?.stop();

  return { course, begin, pause, reset: () => setCourse({ step: "idle" }) };
}

export function isRunning({ step }: Course): boolean {
  return step === "sending" || step === "making";
}

/** Draws anew a few times a second, however fast bytes go. */
function watching(total: number, show: (course: Course) => void): Told {
  const now: Sending = { step: "sending", sent: 0, total, rate: null, standing: null };
  let [since, from, shownAt] = [performance.now(), 0, 0];
  show(now);
  const tell = (anyway: boolean) => {
    if (anyway || performance.now() - shownAt > TOLD_MS) {
      shownAt = performance.now();
      show({ ...now });
    }
  };
  return {
    from: (bytes) => {
      [since, from, now.sent] = [performance.now(), bytes, bytes];
      tell(true);
    },
    sent: (bytes) => {
      const seconds = (performance.now() - since) / 1_000;
      if (seconds > 1 && bytes - from > LEAST_MEASURED) {
        const latest = (bytes - from) / seconds;
        now.rate = now.rate === null ? latest : 0.6 * now.rate + 0.4 * latest;
        [since, from] = [performance.now(), bytes];
      }
      now.sent = bytes;
      tell(bytes === total);
    },
    standing: (why) => {
      const changed = now.standing !== why;
      now.standing = why;
      tell(changed);
    },
  };
}

/** A version of what was sent. `before`: there was one of the same content, and nothing was stored. */
async function make(
  tenant: string,
  name: string,
  alias: string,
  uploads: string[],
  show: (course: Course) => void,
): Promise<{ version: Version; before: boolean }> {
  for (let tries = 0; ; tries += 1) {
    try {
      show({ step: "making", standing: null });
      const answer = await api.POST("/api/v1/tenants/{tenant}/adapters/{name}/versions", {
        params: { path: { tenant, name }, query: { alias } },
        body: { uploads },
        headers: { prefer: "respond-async" },
      });
      const version = await heard(Promise.resolve(answer));
      return { version, before: answer.response.status === 200 && tries === 0 };
    } catch (error) {
      const failure = failureOf(error);
      if (!(failure.passing || failure.status === 423) || tries >= MOST_TRIES) {
        throw failure;
      }
      show({ step: "making", standing: failure.message });
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}
