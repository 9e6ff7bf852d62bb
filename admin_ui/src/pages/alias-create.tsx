import { Button, Group, Modal, Stack, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, heard } from "../api/client";
import { failureOf } from "../api/failure";
import { useUnsaved } from "../parts/edits";
import { useOnce } from "../parts/once";
import { Failed } from "../parts/states";
import { useAdapterPath } from "./adapter-data";
import { useAdapterChanged } from "./alias-data";
import { VersionSelect } from "./version-select";

export function CreateAlias({ onClose }: { onClose: () => void }) {
  const path = useAdapterPath();
  const changed = useAdapterChanged();
  const once = useOnce();
  const [alias, setAlias] = useState("");
  const [version, setVersion] = useState<number | null>(null);
  useUnsaved(alias !== "", true);
  const create = useMutation({
    mutationFn: async () => {
      const params = { path: { ...path, alias }, header: { "if-none-match": "*" } };
      await heard(
        api.PUT("/api/v1/tenants/{tenant}/adapters/{name}/aliases/{alias}", { params, body: { version } }),
      );
      await changed();
    },
    onSuccess: onClose,
  });
  const failure = create.error === null ? null : failureOf(create.error);
  const taken = failure?.status === 412 ? "There is an alias of this name already." : null;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(() => create.mutateAsync().catch(() => {})); // what it failed for is shown
  };
  return (
    <Modal opened onClose={onClose} title="Create alias">
      <form onSubmit={submit}>
        <Stack>
          <TextInput
            label="Name"
            description={`What follows the @ in ${path.name}@…; not a number`}
            value={alias}
            error={taken ?? (failure?.param === "alias" ? failure.message : null)}
            onChange={(event) => setAlias(event.currentTarget.value.trim())}
            required
            withAsterisk={false}
            data-autofocus
          />
          <VersionSelect label="Points to version" value={version} onChange={setVersion} />
          {failure !== null && taken === null && failure.param !== "alias" && <Failed error={failure} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={create.isPending} disabled={version === null}>
              Create
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
