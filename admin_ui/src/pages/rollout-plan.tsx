import { Button, Fieldset, Group, SimpleGrid, Stack, Switch, Table, Text } from "@mantine/core";
import { NumberField } from "../parts/number-field";
import type { RollbackOn, Step } from "./rollout-words";

const MOST_STEPS = 20;

interface StepProps {
  steps: Step[];
  onChange: (steps: Step[]) => void;
  error: string | null;
}

/** Each step gives the new version more than the one before. */
export function StepFields({ steps, onChange, error }: StepProps) {
  const set = (place: number, next: Partial<Step>) =>
    onChange(steps.map((step, each) => (each === place ? { ...step, ...next } : step)));
  const add = () => {
    const last = steps.at(-1) ?? { weight: 0, hold_s: 300, min_requests: 20 };
    onChange([...steps, { ...last, weight: Math.min(100, last.weight + 25) }]);
  };
  return (
    <Fieldset legend="Steps">
      <Table.ScrollContainer minWidth={420}>
        <Table withRowBorders={false} verticalSpacing={4}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">Share, %</Table.Th>
              <Table.Th scope="col">Held for, s</Table.Th>
              <Table.Th scope="col">Requests at least</Table.Th>
              <Table.Th scope="col">
                <span className="off-screen">Remove</span>
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {steps.map((step, place) => (
              <Table.Tr key={place}>
                <StepFigure
                  label={`Share of step ${place + 1}, percent`}
                  value={step.weight}
                  min={1}
                  max={100}
                  onChange={(weight) => set(place, { weight })}
                />
                <StepFigure
                  label={`Step ${place + 1} is held for, seconds`}
                  value={step.hold_s ?? 300}
                  min={0}
                  max={604_800}
                  onChange={(hold_s) => set(place, { hold_s })}
                />
                <StepFigure
                  label={`Requests of step ${place + 1}, at least`}
                  value={step.min_requests ?? 20}
                  min={0}
                  max={1_000_000}
                  onChange={(min_requests) => set(place, { min_requests })}
                />
                <Table.Td>
                  <Button
                    size="xs"
                    variant="default"
                    disabled={steps.length === 1}
                    aria-label={`Remove step ${place + 1}`}
                    onClick={() => onChange(steps.filter((_, each) => each !== place))}
                  >
                    Remove
                  </Button>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      {error !== null && (
        <Text size="sm" c="error" role="alert">
          {error}
        </Text>
      )}
      <Group mt="xs">
        <Button size="xs" variant="default" onClick={add} disabled={steps.length >= MOST_STEPS}>
          Add a step
        </Button>
      </Group>
    </Fieldset>
  );
}

interface FigureProps {
  label: string;
  value: number;
  min: number;
  max: number;
  onChange: (value: number) => void;
}

function StepFigure({ label, value, min, max, onChange }: FigureProps) {
  return (
    <Table.Td>
      <NumberField
        aria-label={label}
        value={value}
        min={min}
        max={max}
        allowDecimal={false}
        thousandSeparator=" "
        onChange={(next) => next !== null && onChange(next)}
      />
    </Table.Td>
  );
}

/** With the one decimal that its field has: 0.07 is 7 %, and not 7.000000000000001. */
const percentOf = (share: number) => Math.round(share * 1_000) / 10;

/** What sends the alias back. An empty field: not that. */
export function BoundFields({
  bounds,
  onChange,
}: {
  bounds: RollbackOn;
  onChange: (bounds: RollbackOn) => void;
}) {
  const set = (next: Partial<RollbackOn>) => onChange({ ...bounds, ...next });
  return (
    <Fieldset legend="It goes back by itself">
      <Stack gap="sm">
        <SimpleGrid cols={{ base: 1, sm: 3 }}>
          <NumberField
            label="Failed requests, %"
            description="borne; if the old version's are no better"
            placeholder="Not judged"
            min={0.1}
            max={100}
            decimalScale={1}
            value={bounds.error_rate === null ? null : percentOf(bounds.error_rate ?? 0.05)}
            onChange={(next) => set({ error_rate: next === null ? null : next / 100 })}
          />
          <NumberField
            label="First token, p95, ×"
            description="of the old version's that are borne"
            placeholder="Not judged"
            min={1}
            max={100}
            decimalScale={1}
            value={bounds.ttft_p95_ratio ?? null}
            onChange={(ttft_p95_ratio) => set({ ttft_p95_ratio })}
          />
          <NumberField
            label="Requests at risk"
            description="of a step; then the bare share decides"
            min={3}
            max={100_000}
            allowDecimal={false}
            value={bounds.max_requests_at_risk ?? 100}
            onChange={(next) => next !== null && set({ max_requests_at_risk: next })}
          />
        </SimpleGrid>
        <Switch
          label="At the first answer that computes to no number (NaN)"
          checked={bounds.not_finite ?? true}
          onChange={(event) => set({ not_finite: event.currentTarget.checked })}
        />
        <Switch
          label="When acceptance prompts are not passed; they are asked before each step"
          checked={bounds.acceptance ?? true}
          onChange={(event) => set({ acceptance: event.currentTarget.checked })}
        />
      </Stack>
    </Fieldset>
  );
}
