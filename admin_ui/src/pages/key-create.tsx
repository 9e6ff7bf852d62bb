import { Button, Group, Stack } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { failureOf } from "../api/failure";
import { BusyModal } from "../parts/busy-modal";
import { useUnsaved } from "../parts/edits";
import { KeyFields, type KeyValues } from "../parts/key-fields";
import { useOnce } from "../parts/once";
import { SecretOnce } from "../parts/secret";
import { Failed } from "../parts/states";
import { useTenantId } from "./tenant-data";

const FIRST: KeyValues = {
  name: "",
  scopes: ["inference"],
  allowed_models: null,
  allowed_networks: null,
  service_class: "standard",
  expires_at: null,
};

export function CreateKey({ onClose }: { onClose: () => void }) {
  const id = useTenantId();
  const client = useQueryClient();
  const [values, setValues] = useState(FIRST);
  const once = useOnce();
  const [made, setMade] = useState<Schemas["KeyCreated"] | null>(null);
  const create = useMutation({
    gcTime: 0, // its answer holds the secret
    mutationFn: async () => {
      const answer = await heard(
        api.POST("/api/v1/tenants/{tenant}/keys", { params: { path: { tenant: id } }, body: values }),
      );
      setMade(answer);
    },
    onSuccess: () => client.invalidateQueries({ queryKey: ["tenant", id, "keys"] }),
  });
  useUnsaved(values !== FIRST && made === null, true);
  const failure = create.error === null ? null : failureOf(create.error);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(() => create.mutateAsync().catch(() => {})); // what it failed for is shown
  };
  if (made !== null) {
    return <SecretOnce title={`Key ${made.key.name}`} secret={made.secret} onClose={onClose} />;
  }
  return (
    <BusyModal opened busy={create.isPending} onClose={onClose} title="Create key">
      <form onSubmit={submit}>
        <Stack>
          <KeyFields
            values={values}
            set={(name, value) => setValues((before) => ({ ...before, [name]: value }))}
            failure={failure}
          />
          {failure !== null && <Failed error={failure} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose} disabled={create.isPending}>
              Cancel
            </Button>
            <Button type="submit" loading={create.isPending}>
              Create
            </Button>
          </Group>
        </Stack>
      </form>
    </BusyModal>
  );
}
