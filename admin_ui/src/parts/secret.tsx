import { Button, Checkbox, Code, Group, Modal, Stack, Text } from "@mantine/core";
import { useState } from "react";
import { CopyButton } from "./copy";
import { useUnsaved } from "./edits";

/** A secret that the API shows this once. It is in this component's state and nowhere else, and nothing closes it
 * but the word of who has stored it. */
export function SecretOnce({
  title,
  secret,
  onClose,
}: {
  title: string;
  secret: string;
  onClose: () => void;
}) {
  const [stored, setStored] = useState(false);
  const [missed, setMissed] = useState(false);
  useUnsaved(!stored);
  return (
    <Modal
      opened
      onClose={() => setMissed(true)}
      withCloseButton={false}
      closeOnClickOutside={false}
      closeOnEscape={false}
      title={title}
    >
      <Stack>
        <Text size="sm">It is shown now and never again. Store it where your programs find it.</Text>
        <Code block className="command" data-testid="secret" tabIndex={0}>
          {secret}
        </Code>
        <Group>
          <CopyButton text={secret} label="Copy" />
        </Group>
        <Checkbox
          label="I have stored it"
          checked={stored}
          error={missed && !stored ? "Say so first." : null}
          onChange={(event) => setStored(event.currentTarget.checked)}
        />
        <Group justify="flex-end">
          <Button onClick={() => (stored ? onClose() : setMissed(true))}>Done</Button>
        </Group>
      </Stack>
    </Modal>
  );
}
