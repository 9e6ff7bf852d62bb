import {
  ActionIcon,
  Button,
  Card,
  Group,
  Select,
  SimpleGrid,
  Stack,
  Switch,
  Text,
  TextInput,
  Title,
} from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { api, type Schemas, tagged } from "../api/client";
import { ConflictNotice, SaveBar, type Saved, useEdit } from "../parts/edits";
import { NumberField } from "../parts/number-field";
import { Page } from "../parts/page";
import { Empty, Failed, Read } from "../parts/states";

type Rule = Schemas["RuleBody"];

interface Fields extends Record<string, unknown> {
  rules: Rule[];
}

const rulesOf = (found: Record<string, unknown>): Fields => ({ rules: found.rules as Rule[] });
const EMPTY: Rule = {
  pool: "general",
  fallback: true,
  min_prompt_tokens: null,
  min_answer_tokens: null,
  service_class: null,
  tenant: null,
  adapter: null,
};
const MOST = 64;

export function PoolsPage() {
  const read = useQuery({
    queryKey: ["pool-rules"],
    queryFn: () => tagged(api.GET("/api/v1/pool-rules")),
    refetchOnWindowFocus: false,
  });
  return (
    <Page
      title="Pools"
      calls={[
        { method: "GET", path: "/api/v1/pool-rules" },
        {
          method: "PUT",
          path: "/api/v1/pool-rules",
          body: { rules: [{ pool: "long", min_prompt_tokens: 16000 }] },
        },
      ]}
    >
      <Text size="sm" maw={720}>
        Which pool of replicas a request goes to: the first rule whose conditions all hold decides. Without
        one it is the pool general. Which pools a replica is in, its own page says.
      </Text>
      <Read of={read} what="the rules">
        {({ data, etag }) => (
          <Rules saved={{ values: rulesOf({ ...data }), etag }} may={data.can.includes("change")} />
        )}
      </Read>
    </Page>
  );
}

function Rules({ saved, may }: { saved: Saved<Fields>; may: boolean }) {
  const client = useQueryClient();
  const keys = useRef<WeakMap<Rule, number>>(new WeakMap());
  const next = useRef(0);
  const edit = useEdit(
    saved,
    async (patch, etag) => {
      const params = { header: etag === null ? {} : { "if-match": etag } };
      const body = { rules: patch.rules ?? saved.values.rules };
      const answer = await tagged(api.PUT("/api/v1/pool-rules", { params, body }));
      client.setQueryData(["pool-rules"], answer);
      return { values: rulesOf({ ...answer.data }), etag: answer.etag };
    },
    rulesOf,
  );
  const { rules } = edit.values;
  const keyOf = (rule: Rule) => {
    const known = keys.current.get(rule) ?? next.current++;
    keys.current.set(rule, known);
    return known;
  };
  const put = (changed: Rule[]) => edit.set("rules", changed);
  const replace = (at: number, rule: Rule) => {
    const before = rules[at];
    if (before !== undefined) {
      keys.current.set(rule, keyOf(before)); // its fields keep the focus
    }
    put(rules.map((one, number) => (number === at ? rule : one)));
  };
  return (
    <Stack>
      <ConflictNotice edit={edit} />
      {rules.length === 0 && (
        <Empty title="There is no rule" command="motet replicas rules --set rules.json">
          <Text size="sm">Every request goes to the pool general.</Text>
        </Empty>
      )}
      {rules.map((rule, at) => (
        <RuleCard
          key={keyOf(rule)}
          rule={rule}
          number={at + 1}
          may={may}
          onChange={(changed) => replace(at, changed)}
          onUp={at === 0 ? undefined : () => put(swapped(rules, at))}
          onRemove={() => put(rules.filter((_, number) => number !== at))}
        />
      ))}
      {edit.failure !== null && <Failed error={edit.failure} />}
      {may && (
        <>
          <Group>
            <Button
              variant="default"
              disabled={rules.length >= MOST}
              onClick={() => put([...rules, { ...EMPTY }])}
            >
              Add rule
            </Button>
          </Group>
          <SaveBar edit={edit} />
        </>
      )}
    </Stack>
  );
}

/** With the one at a place and the one before it the other way round. */
function swapped(rules: Rule[], at: number): Rule[] {
  const made = [...rules];
  made.splice(at - 1, 2, ...rules.slice(at - 1, at + 1).reverse());
  return made;
}

interface CardProps {
  rule: Rule;
  number: number;
  may: boolean;
  onChange: (rule: Rule) => void;
  onUp: (() => void) | undefined;
  onRemove: () => void;
}

function RuleCard({ rule, number, may, onChange, onUp, onRemove }: CardProps) {
  return (
    <Card withBorder component="section" aria-label={`Rule ${number}`}>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h5">
          Rule {number}
        </Title>
        {may && (
          <Group gap="xs">
            <ActionIcon
              variant="default"
              size="lg"
              aria-label={`Move rule ${number} up`}
              disabled={onUp === undefined}
              onClick={onUp}
            >
              ↑
            </ActionIcon>
            <Button size="xs" variant="default" aria-label={`Remove rule ${number}`} onClick={onRemove}>
              Remove
            </Button>
          </Group>
        )}
      </Group>
      <Conditions rule={rule} disabled={!may} onChange={onChange} />
    </Card>
  );
}

interface ConditionsProps {
  rule: Rule;
  disabled: boolean;
  onChange: (rule: Rule) => void;
}

function Conditions({ rule, disabled, onChange }: ConditionsProps) {
  const set = (fields: Partial<Rule>) => onChange({ ...rule, ...fields });
  const words = (value: string) => (value.trim() === "" ? null : value.trim());
  return (
    <SimpleGrid cols={{ base: 1, xs: 2, md: 4 }}>
      <TextInput
        label="Goes to the pool"
        disabled={disabled}
        value={rule.pool}
        onChange={(event) => set({ pool: event.currentTarget.value })}
      />
      <NumberField
        label="Prompt of at least"
        suffix={"\u00a0tokens"}
        placeholder="Any"
        min={1}
        allowDecimal={false}
        disabled={disabled}
        value={rule.min_prompt_tokens ?? null}
        onChange={(min_prompt_tokens) => set({ min_prompt_tokens })}
      />
      <NumberField
        label="Answer of up to at least"
        suffix={"\u00a0tokens"}
        placeholder="Any"
        min={1}
        allowDecimal={false}
        disabled={disabled}
        value={rule.min_answer_tokens ?? null}
        onChange={(min_answer_tokens) => set({ min_answer_tokens })}
      />
      <Select
        label="Service class"
        placeholder="Any"
        clearable
        clearButtonProps={{ "aria-label": "Any class" }}
        data={["interactive", "standard", "batch"]}
        disabled={disabled}
        value={rule.service_class ?? null}
        onChange={(chosen) => set({ service_class: chosen as Rule["service_class"] })}
      />
      <TextInput
        label="Tenant that asks, by id"
        placeholder="Any"
        disabled={disabled}
        value={rule.tenant ?? ""}
        onChange={(event) => set({ tenant: words(event.currentTarget.value) })}
      />
      <TextInput
        label="Adapter"
        placeholder="Any"
        disabled={disabled}
        value={rule.adapter ?? ""}
        onChange={(event) => set({ adapter: words(event.currentTarget.value) })}
      />
      <Switch
        label="General may stand in when the pool has no room"
        disabled={disabled}
        checked={rule.fallback ?? true}
        onChange={(event) => set({ fallback: event.currentTarget.checked })}
      />
    </SimpleGrid>
  );
}
