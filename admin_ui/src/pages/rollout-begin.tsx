import { Alert, Button, Group, Modal, Select, Stack, Text, Textarea } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { Failure, failureOf } from "../api/failure";
import { useUnsaved } from "../parts/edits";
import { useOnce } from "../parts/once";
import { Failed } from "../parts/states";
import { useAdapterPath } from "./adapter-data";
import { type Alias, useAdapterChanged, useAdapterKey } from "./alias-data";
import { BoundFields, StepFields } from "./rollout-plan";
import { boundsOf, type RollbackOn, type Step, spanText } from "./rollout-words";
import { VersionSelect } from "./version-select";

const STEPS: Step[] = [5, 25, 50, 100].map((weight) => ({ weight, hold_s: 300, min_requests: 20 }));
const BOUNDS: RollbackOn = {
  error_rate: 0.05,
  ttft_p95_ratio: 2,
  not_finite: true,
  acceptance: true,
  max_requests_at_risk: 100,
};

export function BeginRollout({ alias: first, onClose }: { alias: string; onClose: () => void }) {
  const path = useAdapterPath();
  const changed = useAdapterChanged();
  const navigate = useNavigate();
  const once = useOnce();
  const aliases = useAliasesToRollOut();
  const [wanted, setWanted] = useState(first);
  const [to, setTo] = useState<number | null>(null);
  const [steps, setSteps] = useState(STEPS);
  const [bounds, setBounds] = useState(BOUNDS);
  const [prompts, setPrompts] = useState("");
  useUnsaved(to !== null || steps !== STEPS || bounds !== BOUNDS || prompts !== "");
  const from = aliases?.find((each) => each.alias === wanted) ?? aliases?.[0];
  const begin = useMutation({
    mutationFn: async () => {
      if (from === undefined || to === null) {
        const missing = from === undefined ? "alias" : "to";
        throw new Failure(422, { detail: "Choose one.", param: missing });
      }
      const body = { alias: from.alias, to, steps, rollback_on: bounds, acceptance: acceptanceOf(prompts) };
      const params = { path };
      return heard(api.POST("/api/v1/tenants/{tenant}/adapters/{name}/rollouts", { params, body }));
    },
    onSuccess: async (made) => {
      await changed();
      await navigate({ to: `/tenants/${path.tenant}/adapters/${path.name}/rollouts/${made.id}` });
    },
  });
  const failure = begin.error === null ? null : failureOf(begin.error);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(() => begin.mutateAsync().catch(() => {})); // what it failed for is shown
  };
  const fieldOf = (param: string) => (failure?.param === param ? failure.message : null);
  return (
    <Modal opened onClose={onClose} title="Begin a rollout" size="lg">
      <form onSubmit={submit}>
        <Stack>
          <Group grow align="start">
            <Select
              label="Alias"
              description="Of one version; under no other rollout"
              allowDeselect={false}
              placeholder={aliases?.length === 0 ? "None can begin one now" : ""}
              data={(aliases ?? []).map((each) => ({
                value: each.alias,
                label: `${each.alias} (version ${each.version})`,
              }))}
              value={from?.alias ?? null}
              error={fieldOf("alias")}
              onChange={(chosen) => setWanted(chosen ?? first)}
            />
            <VersionSelect
              label="New version"
              value={to}
              without={from === undefined ? [] : [from.version]}
              error={fieldOf("to") ?? fieldOf("weights")}
              onChange={setTo}
            />
          </Group>
          <StepFields steps={steps} onChange={setSteps} error={fieldOf("steps")} />
          <BoundFields bounds={bounds} onChange={setBounds} />
          {bounds.acceptance && (
            <Textarea
              label="Acceptance prompts of this rollout, as JSON"
              description='Empty: those that came with the version. {"prompts": [{"input": "Ahoy?", "must_match": "arr"}], "minimum_share": 1}'
              autosize
              minRows={1}
              maxRows={8}
              spellCheck={false}
              value={prompts}
              error={fieldOf("acceptance")}
              onChange={(event) => setPrompts(event.currentTarget.value)}
            />
          )}
          <Warnings alias={from?.alias} />
          <Summary from={from} to={to} steps={steps} bounds={bounds} name={path.name} />
          {failure !== null &&
            !["alias", "to", "weights", "steps", "acceptance"].includes(failure.param ?? "") && (
              <Failed error={failure} />
            )}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={begin.isPending}>
              Begin
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

/** Those that a rollout can begin with now; the first two hundred by name. */
function useAliasesToRollOut(): Alias[] | undefined {
  const path = useAdapterPath();
  const query = { limit: 200 };
  const read = useQuery({
    queryKey: [...useAdapterKey(), "aliases", query],
    queryFn: () =>
      heard(api.GET("/api/v1/tenants/{tenant}/adapters/{name}/aliases", { params: { path, query } })),
  });
  return read.data?.data.filter((each) => each.can.includes("begin_rollout"));
}

/** Raises `Failure`, as the API would. */
function acceptanceOf(text: string): Schemas["Acceptance"] | null {
  if (text.trim() === "") {
    return null;
  }
  try {
    return JSON.parse(text) as Schemas["Acceptance"];
  } catch (error) {
    throw new Failure(422, { detail: `That is no JSON: ${String(error)}`, param: "acceptance" });
  }
}

function Warnings({ alias }: { alias: string | undefined }) {
  return (
    <Alert color="yellow" p="xs" role="note">
      <Text size="sm">
        Only this tenant's own requests are counted: those of tenants that the adapter is shared with are
        answered by the same weights, and judge nothing.
      </Text>
      {alias === "live" && (
        <Text size="sm" mt="xs">
          An upload that moves live meanwhile ends this rollout: upload with alias none until it is over.
        </Text>
      )}
    </Alert>
  );
}

interface Plan {
  from: Alias | undefined;
  to: number | null;
  steps: Step[];
  bounds: RollbackOn;
  name: string;
}

function Summary({ from, to, steps, bounds, name }: Plan) {
  if (from === undefined || to === null) {
    return null;
  }
  const least = steps.reduce((sum, step) => sum + (step.hold_s ?? 0), 0);
  const back = boundsOf(bounds);
  return (
    <Text size="sm" aria-live="polite">
      {`${name}@${from.alias} goes from version ${from.version} to ${to}, by ${steps.map((step) => `${step.weight}\u00a0%`).join(", ")}, in ${spanText(least)} at the least. `}
      {back.length === 0
        ? "Nothing takes it back by itself."
        : `It goes back by itself, at once, when ${back.join("; when ")}.`}
    </Text>
  );
}
