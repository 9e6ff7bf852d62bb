import { Button, Group, Kbd, Text, Textarea } from "@mantine/core";
import { type KeyboardEvent, useState } from "react";
import { useUnsaved } from "../parts/edits";

interface Props {
  busy: boolean;
  ready: string | null; // why nothing can be asked now
  onSend: (prompt: string) => void;
  onStop: () => void;
}

export function Composer({ busy, ready, onSend, onStop }: Props) {
  const [prompt, setPrompt] = useState("");
  useUnsaved(prompt.trim() !== "", true);
  const send = () => {
    if (prompt.trim() !== "" && !busy && ready === null) {
      onSend(prompt);
      setPrompt("");
    }
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape" && busy) {
      onStop();
    }
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <Textarea
        label="Message"
        autosize
        minRows={2}
        maxRows={12}
        value={prompt}
        onChange={(event) => setPrompt(event.currentTarget.value)}
        onKeyDown={onKey}
        error={prompt.trim() !== "" ? ready : null}
      />
      <Group mt="xs" gap="xs">
        {busy ? (
          <Button type="button" color="red" variant="light" onClick={onStop}>
            Stop
          </Button>
        ) : (
          <Button type="submit">Send</Button>
        )}
        <Text size="xs" c="dimmed" visibleFrom="xs">
          <Kbd size="xs">Enter</Kbd> sends, <Kbd size="xs">Shift Enter</Kbd> makes a line,{" "}
          <Kbd size="xs">Esc</Kbd> stops
        </Text>
      </Group>
    </form>
  );
}
