import { Button, Group, Modal, Radio, Stack, Switch, Text, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { countText } from "../parts/figures";
import { useOnce } from "../parts/once";
import { Failed } from "../parts/states";

interface Props {
  base: Schemas["BaseOut"];
  upgrade: Schemas["UpgradeOut"];
  onClose: () => void;
}

/** Either way out of an upgrade, with what it costs. */
export function EndUpgrade({ base, upgrade, onClose }: Props) {
  const client = useQueryClient();
  const once = useOnce();
  const [keep, setKeep] = useState<"new" | "old">("new");
  const [leaveBehind, setLeaveBehind] = useState(false);
  const [typed, setTyped] = useState("");
  const [missed, setMissed] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const behind = upgrade.failed + upgrade.left;
  const word = upgrade.base_digest.slice(0, 8);
  const send = async () => {
    if (typed !== word) {
      setMissed(true);
      return;
    }
    setBusy(true);
    setError(null);
    try {
      const params = { path: { base_id: base.id, digest: upgrade.base_digest } };
      const body = { keep, leave_behind: leaveBehind };
      await heard(api.POST("/api/v1/bases/{base_id}/upgrades/{digest}/end", { params, body }));
      await client.invalidateQueries({ queryKey: ["bases"] });
      await client.invalidateQueries({ queryKey: ["base-weights"] });
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Modal opened onClose={onClose} title={`End the upgrade of ${base.name}`}>
      <form
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          void once(send);
        }}
      >
        <Stack>
          <Radio.Group
            label="Which weights go on alone"
            value={keep}
            onChange={(value) => setKeep(value as "new" | "old")}
          >
            <Stack gap="xs" mt="xs">
              <Radio value="new" label="The new ones" />
              <Radio value="old" label="Those from before: the upgrade is given up" />
            </Stack>
          </Radio.Group>
          <Text size="sm">{effect(keep, behind, upgrade)}</Text>
          {keep === "new" && behind > 0 && (
            <Switch
              label={`Leave ${countText(behind)} versions behind`}
              description="Requests for them are refused from then on"
              checked={leaveBehind}
              onChange={(event) => setLeaveBehind(event.currentTarget.checked)}
            />
          )}
          <TextInput
            label={`Type ${word} to go on`}
            value={typed}
            error={missed && typed !== word ? "Those are not its first digits." : null}
            onChange={(event) => setTyped(event.currentTarget.value)}
            autoComplete="off"
            spellCheck={false}
          />
          {error !== null && <Failed error={error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" color="red.9" loading={busy}>
              End it
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

function effect(keep: "new" | "old", behind: number, upgrade: Schemas["UpgradeOut"]): string {
  if (keep === "old") {
    return `Replicas with the new weights get no more requests. ${countText(upgrade.proved)} versions that were proved there go on with the weights from before.`;
  }
  const follow = `Replicas with the weights from before get no more requests. ${countText(upgrade.proved)} versions go on.`;
  return behind === 0
    ? follow
    : `${follow} ${countText(upgrade.failed)} failed there and ${countText(upgrade.left)} are not proved: they can't follow.`;
}
