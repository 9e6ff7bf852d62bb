import { SimpleGrid, Switch, TextInput } from "@mantine/core";
import type { Schemas } from "../api/client";
import { ConflictNotice, type Edit, SaveBar } from "./edits";
import { NumberField } from "./number-field";
import { Failed } from "./states";

type Budget = Schemas["BudgetOut"] | null;

export interface LimitValues extends Record<string, unknown> {
  requests_per_minute: number | null;
  tokens_per_minute: number | null;
  input_tokens_per_minute: number | null;
  output_tokens_per_minute: number | null;
  max_parallel: number | null;
  budget_day: Budget;
  budget_month: Budget;
}

const NUMBERS = [
  ["requests_per_minute", "Requests a minute"],
  ["tokens_per_minute", "Tokens a minute"],
  ["input_tokens_per_minute", "Input tokens a minute"],
  ["output_tokens_per_minute", "Output tokens a minute"],
  ["max_parallel", "Requests at a time"],
] as const;

export function limitValues(found: Record<string, unknown>): LimitValues {
  return {
    requests_per_minute: (found.requests_per_minute as number | null) ?? null,
    tokens_per_minute: (found.tokens_per_minute as number | null) ?? null,
    input_tokens_per_minute: (found.input_tokens_per_minute as number | null) ?? null,
    output_tokens_per_minute: (found.output_tokens_per_minute as number | null) ?? null,
    max_parallel: (found.max_parallel as number | null) ?? null,
    budget_day: (found.budget_day as Budget) ?? null,
    budget_month: (found.budget_month as Budget) ?? null,
  };
}

interface FieldsProps {
  edit: Edit<LimitValues>;
  disabled: boolean;
  /** Adapters have none. */
  budgets?: boolean;
}

/** Edited as a whole, and saved by what was changed. `budgets` false: it has none. */
export function LimitForm({
  edit,
  may,
  budgets = true,
}: {
  edit: Edit<LimitValues>;
  may: boolean;
  budgets?: boolean;
}) {
  return (
    <>
      <ConflictNotice edit={edit} />
      <LimitFields edit={edit} disabled={!may} budgets={budgets} />
      {edit.failure !== null && <Failed error={edit.failure} />}
      {may && <SaveBar edit={edit} />}
    </>
  );
}

/** An empty field is no limit. */
function LimitFields({ edit, disabled, budgets = true }: FieldsProps) {
  const param = edit.failure?.param;
  return (
    <SimpleGrid cols={{ base: 1, sm: 2 }}>
      {NUMBERS.map(([name, label]) => (
        <NumberField
          key={name}
          label={label}
          placeholder="No limit"
          min={1}
          max={1_000_000_000}
          allowDecimal={false}
          thousandSeparator=" "
          disabled={disabled}
          error={param === name ? edit.failure?.message : null}
          value={edit.values[name]}
          onChange={(value) => edit.set(name, value)}
        />
      ))}
      {budgets && (
        <>
          <BudgetField edit={edit} name="budget_day" label="Budget a day (UTC)" disabled={disabled} />
          <BudgetField edit={edit} name="budget_month" label="Budget a month (UTC)" disabled={disabled} />
        </>
      )}
    </SimpleGrid>
  );
}

interface BudgetProps {
  edit: Edit<LimitValues>;
  name: "budget_day" | "budget_month";
  label: string;
  disabled: boolean;
}

/** Money is a decimal text here, too: no binary fraction comes near it. */
function BudgetField({ edit, name, label, disabled }: BudgetProps) {
  const budget = edit.values[name];
  const set = (next: Partial<Schemas["BudgetOut"]>) =>
    edit.set(name, { amount: "", hard: true, thresholds: [50, 80, 100], ...budget, ...next });
  return (
    <div>
      <TextInput
        label={label}
        placeholder="No budget"
        inputMode="decimal"
        disabled={disabled}
        error={edit.failure?.param?.startsWith(name) ? edit.failure.message : null}
        value={budget?.amount ?? ""}
        onChange={(event) => {
          const amount = event.currentTarget.value.trim();
          if (amount === "") {
            edit.set(name, null);
          } else {
            set({ amount });
          }
        }}
      />
      {budget !== null && (
        <Switch
          mt="xs"
          label="Refuse requests when it is spent"
          disabled={disabled}
          checked={budget.hard}
          onChange={(event) => set({ hard: event.currentTarget.checked })}
        />
      )}
    </div>
  );
}
