import { Button, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { type FormEvent, type ReactNode, useState } from "react";
import { useUnsaved } from "./edits";
import { useOnce } from "./once";
import { Failed } from "./states";

interface Props {
  title: string;
  /** What comes of it, in words and numbers. */
  effect: string;
  /** To be typed by whoever means it; absent: a click is enough, for it can be undone. */
  typed?: string;
  action: string;
  dangerous?: boolean;
  /** Whether its effect is known by now: nobody agrees to what is still counted. */
  ready?: boolean;
  /** Why its effect can't be known. */
  unknown?: { error: unknown; onRetry: () => void } | undefined;
  field?: { label: string };
  /** What else is to be chosen. */
  children?: ReactNode;
  onConfirm: (text: string) => Promise<unknown>;
  onClose: () => void;
}

export function Confirm({
  title,
  effect,
  typed,
  action,
  dangerous = true,
  ready = true,
  unknown,
  field,
  children,
  onConfirm,
  onClose,
}: Props) {
  const [name, setName] = useState("");
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const once = useOnce();
  const [error, setError] = useState<unknown>(null);
  const [missed, setMissed] = useState(false);
  useUnsaved(name !== "" || text !== "", true);

  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(send);
  };

  const send = async () => {
    if (!ready) {
      return;
    }
    if (typed !== undefined && name !== typed) {
      setMissed(true);
      return;
    }
    setBusy(true);
    setError(null);
    try {
      await onConfirm(text);
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };

  const close = () => {
    if (!busy) {
      onClose(); // else what it answers, a refusal or a secret, would be seen by nobody
    }
  };

  return (
    <Modal opened onClose={close} title={title} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit}>
        <Stack>
          <Text size="sm" aria-live="polite">
            {effect}
          </Text>
          {unknown !== undefined && <Failed error={unknown.error} onRetry={unknown.onRetry} />}
          {children}
          {field !== undefined && (
            <TextInput
              label={field.label}
              maxLength={500}
              value={text}
              onChange={(e) => setText(e.currentTarget.value)}
            />
          )}
          {typed !== undefined && (
            <TextInput
              label={`Type ${typed} to go on`}
              value={name}
              error={missed && name !== typed ? "That is not the name." : null}
              onChange={(event) => setName(event.currentTarget.value)}
              autoComplete="off"
              spellCheck={false}
              data-autofocus
            />
          )}
          {error !== null && <Failed error={error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              Cancel
            </Button>
            <Button
              type="submit"
              color={dangerous ? "red.9" : undefined}
              loading={busy || (!ready && unknown === undefined)}
              disabled={unknown !== undefined}
            >
              {action}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
