import { Collapse, Stack, TagsInput, Textarea, UnstyledButton } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { NumberField } from "../parts/number-field";
import { NUMBER_NAMES, NUMBERS, type NumberName, type Numbers } from "./request";

const FIRST: NumberName[] = ["max_tokens", "temperature", "top_p", "seed"];
const MOST_STOPS = 16;

interface Props {
  numbers: Numbers;
  setNumber: (name: NumberName, value: number | undefined) => void;
  system: string;
  setSystem: (text: string) => void;
  stop: string[];
  setStop: (texts: string[]) => void;
  wrong: string | undefined; // the parameter that the API refused
}

/** What is left empty is not sent: the API's own default holds. */
export function Parameters({ numbers, setNumber, system, setSystem, stop, setStop, wrong }: Props) {
  const rest = NUMBER_NAMES.filter((name) => !FIRST.includes(name));
  const [open, more] = useDisclosure(rest.some((name) => numbers[name] !== undefined));
  const field = (name: NumberName) => {
    const { label, min, max, step, hint } = NUMBERS[name];
    return (
      <NumberField
        key={name}
        label={label}
        placeholder={hint}
        min={min}
        max={max}
        step={step}
        allowDecimal={step < 1}
        error={wrong === name ? "The API refused it." : null}
        value={numbers[name] ?? null}
        onChange={(value) => setNumber(name, value ?? undefined)}
      />
    );
  };
  return (
    <Stack gap="sm" component="section" aria-label="Parameters">
      <Textarea
        label="System prompt"
        autosize
        minRows={2}
        maxRows={8}
        value={system}
        onChange={(event) => setSystem(event.currentTarget.value)}
      />
      {FIRST.map(field)}
      <TagsInput
        label="Stop"
        description="Texts that end an answer; Enter after each"
        maxTags={MOST_STOPS}
        splitChars={[]}
        value={stop}
        onChange={setStop}
      />
      <UnstyledButton onClick={more.toggle} aria-expanded={open} c="dimmed" fz="sm">
        {open ? "Fewer parameters" : "More parameters"}
      </UnstyledButton>
      <Collapse expanded={open}>
        <Stack gap="sm">{rest.map(field)}</Stack>
      </Collapse>
    </Stack>
  );
}
