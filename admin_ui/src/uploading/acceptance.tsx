import {
  ActionIcon,
  Button,
  Card,
  Group,
  Select,
  Stack,
  Text,
  Textarea,
  TextInput,
  Title,
} from "@mantine/core";
import { NumberField } from "../parts/number-field";
import { ACCEPTANCE } from "./check";

const MOST_PROMPTS = 32;

export interface Prompt {
  /** Of the row, for drawing only. */
  id: number;
  input: string;
  kind: "must_match" | "answer";
  expected: string;
}

export interface Acceptance {
  prompts: Prompt[];
  percent: number;
}

export const NO_ACCEPTANCE: Acceptance = { prompts: [], percent: 100 };

/** The file that the API takes; null where nothing is asked. */
export function acceptanceFile({ prompts, percent }: Acceptance): File | null {
  if (prompts.length === 0) {
    return null;
  }
  const content = {
    prompts: prompts.map(({ input, kind, expected }) => ({ input, [kind]: expected })),
    minimum_share: percent / 100,
  };
  return new File([JSON.stringify(content)], ACCEPTANCE, { type: "application/json" });
}

interface Props {
  value: Acceptance;
  onChange: (value: Acceptance) => void;
  disabled: boolean;
}

/** Prompts that the adapter has to answer as asked before it is ready. */
export function AcceptanceEditor({ value, onChange, disabled }: Props) {
  const { prompts } = value;
  const change = (id: number, fields: Partial<Prompt>) =>
    onChange({ ...value, prompts: prompts.map((each) => (each.id === id ? { ...each, ...fields } : each)) });
  const add = () => {
    const id = Math.max(0, ...prompts.map((each) => each.id)) + 1;
    onChange({ ...value, prompts: [...prompts, { id, input: "", kind: "must_match", expected: "" }] });
  };
  return (
    <Card withBorder>
      <Title order={2} size="h4">
        Acceptance prompts (optional)
      </Title>
      <Text size="sm" c="dimmed" mb="sm">
        What it has to answer as asked before it is ready. It answers without chance (temperature 0), and
        nobody pays for it.
      </Text>
      <Stack>
        {prompts.map((prompt, index) => (
          <PromptFields
            key={prompt.id}
            prompt={prompt}
            number={index + 1}
            disabled={disabled}
            onChange={(fields) => change(prompt.id, fields)}
            onRemove={() => onChange({ ...value, prompts: prompts.filter((each) => each.id !== prompt.id) })}
          />
        ))}
        <Group align="end">
          <Button variant="default" onClick={add} disabled={disabled || prompts.length >= MOST_PROMPTS}>
            Add a prompt
          </Button>
          {prompts.length > 1 && (
            <NumberField
              label="Answered as asked, at least"
              suffix=" %"
              min={0}
              max={100}
              disabled={disabled}
              value={value.percent}
              onChange={(percent) => percent !== null && onChange({ ...value, percent })}
              w={220}
            />
          )}
        </Group>
      </Stack>
    </Card>
  );
}

interface FieldsProps {
  prompt: Prompt;
  number: number;
  disabled: boolean;
  onChange: (fields: Partial<Prompt>) => void;
  onRemove: () => void;
}

function PromptFields({ prompt, number, disabled, onChange, onRemove }: FieldsProps) {
  return (
    <Group align="start" gap="xs" role="group" aria-label={`Prompt ${number}`}>
      <Textarea
        label="A user writes"
        autosize
        minRows={1}
        maxRows={6}
        required
        withAsterisk={false}
        disabled={disabled}
        value={prompt.input}
        onChange={(event) => onChange({ input: event.currentTarget.value })}
        flex="1 1 14rem"
      />
      <Select
        label="The answer"
        allowDeselect={false}
        disabled={disabled}
        data={[
          { value: "must_match", label: "has a match of" },
          { value: "answer", label: "is exactly" },
        ]}
        value={prompt.kind}
        onChange={(kind) => onChange({ kind: kind === "answer" ? "answer" : "must_match" })}
        w={160}
      />
      <TextInput
        label={prompt.kind === "answer" ? "Text" : "Regular expression"}
        required
        withAsterisk={false}
        disabled={disabled}
        value={prompt.expected}
        onChange={(event) => onChange({ expected: event.currentTarget.value })}
        flex="1 1 12rem"
      />
      <ActionIcon
        variant="default"
        size="lg"
        mt={25}
        aria-label={`Remove prompt ${number}`}
        disabled={disabled}
        onClick={onRemove}
      >
        ×
      </ActionIcon>
    </Group>
  );
}
