import { Button, Group, Select, Stack, Text } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { BusyModal } from "../parts/busy-modal";
import { useOnce } from "../parts/once";
import { Failed } from "../parts/states";

const OVERLAPS = [
  { value: "0", label: "Now" },
  { value: "3600", label: "In an hour" },
  { value: "86400", label: "In a day" },
  { value: "604800", label: "In a week" },
  { value: "2592000", label: "In 30 days" },
];

interface Props {
  found: Schemas["KeyOut"];
  onClose: () => void;
  onDone: (secret: string) => Promise<void>;
}

export function RotateKey({ found, onClose, onDone }: Props) {
  const [overlap, setOverlap] = useState("86400");
  const [busy, setBusy] = useState(false);
  const once = useOnce();
  const [error, setError] = useState<unknown>(null);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(send);
  };

  const send = async () => {
    setBusy(true);
    setError(null);
    try {
      const made = await heard(
        api.POST("/api/v1/tenants/{tenant}/keys/{key_id}/rotate", {
          params: { path: { tenant: found.tenant, key_id: found.id } },
          body: { overlap_s: Number(overlap) },
        }),
      );
      await onDone(made.secret);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <BusyModal opened busy={busy} onClose={onClose} title={`Rotate ${found.name}`}>
      <form onSubmit={submit}>
        <Stack>
          <Text size="sm">It gets a new secret, which is shown once. Id, limits and usage stay.</Text>
          <Select
            label="The secret of now ends"
            data={OVERLAPS}
            allowDeselect={false}
            value={overlap}
            onChange={(chosen) => setOverlap(chosen ?? "86400")}
          />
          {error !== null && <Failed error={error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose} disabled={busy}>
              Cancel
            </Button>
            <Button type="submit" loading={busy}>
              Rotate
            </Button>
          </Group>
        </Stack>
      </form>
    </BusyModal>
  );
}
