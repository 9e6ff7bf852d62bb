import "@mantine/dropzone/styles.css";
import { Button, Group, List, Stack, Text } from "@mantine/core";
import { Dropzone, type FileWithPath } from "@mantine/dropzone";
import { type ChangeEvent, useRef } from "react";
import { Bytes, Mono } from "../parts/figures";
import type { Checked, Chosen } from "./check";

interface Props {
  onChoose: (chosen: Chosen[]) => void;
  disabled: boolean;
}

/** By dropping a folder, files or a zip on it, or with the dialogs of the browser, which keys reach, too. */
export function FilesField({ onChoose, disabled }: Props) {
  const folder = useRef<HTMLInputElement>(null);
  const files = useRef<HTMLInputElement>(null);
  const take = (event: ChangeEvent<HTMLInputElement>) => {
    const chosen = [...(event.currentTarget.files ?? [])];
    event.currentTarget.value = ""; // the same again is a choice, too
    if (chosen.length > 0) {
      onChoose(chosen.map((file) => ({ path: file.webkitRelativePath || file.name, file })));
    }
  };
  return (
    <Dropzone
      onDrop={(dropped) => onChoose(dropped.map((file) => ({ path: pathOf(file), file })))}
      activateOnClick={false}
      activateOnKeyboard={false}
      enablePointerEvents
      disabled={disabled}
      inputProps={{ "aria-hidden": true, tabIndex: -1 }}
      data-testid="drop"
    >
      <Stack align="center" gap="xs" py="md">
        <Text fw={600} ta="center">
          Drop the adapter's folder, its files, or a zip of them
        </Text>
        <Text size="sm" c="dimmed" ta="center">
          adapter_config.json and adapter_model.safetensors, as PEFT writes them
        </Text>
        <Group justify="center">
          <Button variant="default" disabled={disabled} onClick={() => folder.current?.click()}>
            Choose a folder…
          </Button>
          <Button variant="default" disabled={disabled} onClick={() => files.current?.click()}>
            Choose files…
          </Button>
        </Group>
        <input ref={folder} type="file" hidden webkitdirectory="" onChange={take} aria-label="Folder" />
        <input ref={files} type="file" hidden multiple onChange={take} aria-label="Files" />
      </Stack>
    </Dropzone>
  );
}

function pathOf(file: FileWithPath): string {
  return (file.path ?? file.name).replace(/^\.?\//, "");
}

/** What will be sent, and what stays where it is. */
export function ChosenFiles({ checked }: { checked: Checked }) {
  return (
    <div>
      <List size="sm">
        {checked.files.map((file) => (
          <List.Item key={file.name}>
            <Mono>{file.name}</Mono> <Bytes value={file.size} />
          </List.Item>
        ))}
      </List>
      {checked.leftOut.length > 0 && (
        <Text size="sm" c="dimmed" mt="xs">
          Left out, for an adapter needs no more: {checked.leftOut.slice(0, 5).join(", ")}
          {checked.leftOut.length > 5 ? ` and ${checked.leftOut.length - 5} more` : ""}
        </Text>
      )}
    </div>
  );
}
