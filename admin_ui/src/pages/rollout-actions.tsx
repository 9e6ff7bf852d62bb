import { Button, Group } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, heard } from "../api/client";
import { failureOf } from "../api/failure";
import { Confirm } from "../parts/confirm";
import { useOnce } from "../parts/once";
import { useAdapterPath } from "./adapter-data";
import { useAdapterChanged, useAdapterKey } from "./alias-data";
import type { Rollout } from "./rollout-words";

const ROOT = "/api/v1/tenants/{tenant}/adapters/{name}/rollouts/{rollout_id}";

export function RolloutActions({ rollout }: { rollout: Rollout }) {
  const path = { ...useAdapterPath(), rollout_id: rollout.id };
  const client = useQueryClient();
  const key = [...useAdapterKey(), "rollout", rollout.id];
  const changed = useAdapterChanged();
  const once = useOnce();
  const [busy, setBusy] = useState(false);
  const [asking, setAsking] = useState<"promote" | "roll_back" | null>(null);
  const params = { path };
  const take = async (call: Promise<Rollout>) => {
    const now = await call;
    await client.cancelQueries({ queryKey: key }); // an answer of before would take it back on the screen
    client.setQueryData(key, (before: Rollout | undefined) => ({ ...now, events: before?.events ?? null }));
    void changed();
  };
  const atOnce = (call: () => Promise<Rollout>) =>
    void once(async () => {
      setBusy(true);
      try {
        await take(call());
      } catch (error) {
        notifications.show({ color: "red", message: failureOf(error).message });
      } finally {
        setBusy(false);
      }
    });
  const share = shareOf(rollout);
  const name = `${rollout.adapter}@${rollout.alias}`;
  return (
    <Group gap="xs">
      {rollout.can.includes("pause") && (
        <Button
          variant="default"
          loading={busy}
          onClick={() => atOnce(() => heard(api.POST(`${ROOT}/pause`, { params })))}
        >
          Pause
        </Button>
      )}
      {rollout.can.includes("resume") && (
        <Button
          variant="default"
          loading={busy}
          onClick={() => atOnce(() => heard(api.POST(`${ROOT}/resume`, { params })))}
        >
          Resume
        </Button>
      )}
      {rollout.can.includes("promote") && <Button onClick={() => setAsking("promote")}>Promote…</Button>}
      {rollout.can.includes("roll_back") && (
        <Button color="red" variant="light" onClick={() => setAsking("roll_back")}>
          Roll back…
        </Button>
      )}
      {asking === "promote" && (
        <Confirm
          title={`Promote version ${rollout.to_version}`}
          effect={`The rollout ends here, in step ${rollout.step} of ${rollout.steps.length}. From the next request on, version ${rollout.to_version} answers all of ${name}; now it is ${share}\u00a0%. Nothing takes it back by itself any more.`}
          action="Promote"
          dangerous={false}
          onConfirm={() => take(heard(api.POST(`${ROOT}/promote`, { params })))}
          onClose={() => setAsking(null)}
        />
      )}
      {asking === "roll_back" && (
        <Confirm
          title={`Roll back to version ${rollout.from_version}`}
          effect={`The rollout ends here. From the next request on, version ${rollout.from_version} answers all of ${name}: the ${share}\u00a0% of its conversations that version ${rollout.to_version} has change their version.`}
          action="Roll back"
          onConfirm={() => take(heard(api.POST(`${ROOT}/rollback`, { params })))}
          onClose={() => setAsking(null)}
        />
      )}
    </Group>
  );
}

/** Percent that the new version has now: the step's, once it holds, and till then that of the step before. */
export function shareOf(rollout: Rollout): number {
  const reached = rollout.step_began_at === null ? rollout.step - 2 : rollout.step - 1;
  return rollout.steps[reached]?.weight ?? 0;
}
