import { Button, Group, TextInput } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { requestIdIn } from "../shell/request-id";

/** Somebody has an id from an answer's header and wants to know what became of it. */
export function FindRequest({ tenant }: { tenant?: string }) {
  const navigate = useNavigate();
  const [typed, setTyped] = useState("");
  const [missed, setMissed] = useState(false);
  const id = requestIdIn(typed);
  const open = (event: FormEvent) => {
    event.preventDefault();
    if (id === undefined) {
      setMissed(true);
      return;
    }
    void navigate({ to: tenant === undefined ? `/requests/${id}` : `/tenants/${tenant}/requests/${id}` });
  };
  return (
    <form onSubmit={open}>
      <Group gap="xs" align="end" wrap="nowrap">
        <TextInput
          label="Why was this request refused or slow?"
          placeholder="x-request-id of its answer"
          value={typed}
          error={missed && id === undefined ? "There is no id of a request in this." : null}
          onChange={(event) => setTyped(event.currentTarget.value)}
          w={{ base: "100%", xs: 330 }}
          flex="1 1 auto"
        />
        <Button type="submit" variant="default" flex="none">
          Open
        </Button>
      </Group>
    </form>
  );
}
