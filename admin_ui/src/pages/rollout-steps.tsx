import { Progress, Stack, Table, Text } from "@mantine/core";
import { useEffect, useState } from "react";
import { countText } from "../parts/figures";
import { Scrolls } from "../parts/scrolls";
import { shareOf } from "./rollout-actions";
import { isActive, type Rollout, type Step, spanText } from "./rollout-words";

export function StepsOnTheWay({ rollout }: { rollout: Rollout }) {
  return (
    <Stack gap="sm">
      <Scrolls minWidth={300} what="Steps of this rollout">
        <Table verticalSpacing={4}>
          <caption className="off-screen">Steps of this rollout</caption>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">Step</Table.Th>
              <Table.Th scope="col" ta="end">
                Share
              </Table.Th>
              <Table.Th scope="col" ta="end">
                Held for
              </Table.Th>
              <Table.Th scope="col" ta="end">
                Requests at least
              </Table.Th>
              <Table.Th scope="col">State</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rollout.steps.map((step, place) => (
              <StepRow key={step.weight} step={step} number={place + 1} rollout={rollout} />
            ))}
          </Table.Tbody>
        </Table>
      </Scrolls>
      {isActive(rollout) && <UntilTheNext rollout={rollout} />}
    </Stack>
  );
}

function StepRow({ step, number, rollout }: { step: Step; number: number; rollout: Rollout }) {
  return (
    <Table.Tr aria-current={number === rollout.step && isActive(rollout) ? "step" : undefined}>
      <Table.Td>{number}</Table.Td>
      <Table.Td ta="end" className="figures">{`${step.weight}\u00a0%`}</Table.Td>
      <Table.Td ta="end" className="figures">
        {spanText(step.hold_s ?? 0)}
      </Table.Td>
      <Table.Td ta="end" className="figures">
        {countText(step.min_requests ?? 0)}
      </Table.Td>
      <Table.Td>{stateOf(number, rollout)}</Table.Td>
    </Table.Tr>
  );
}

function stateOf(number: number, rollout: Rollout): string {
  if (number < rollout.step || (number === rollout.step && rollout.state === "promoted")) {
    return rollout.reason !== null && number === rollout.step ? "ended by hand" : "passed";
  }
  if (number > rollout.step) {
    return isActive(rollout) ? "to come" : "not reached";
  }
  if (!isActive(rollout)) {
    return "ended here";
  }
  return rollout.step_began_at === null ? "about to begin" : "now";
}

/** By how much the present step lacks its time and its requests. */
function UntilTheNext({ rollout }: { rollout: Rollout }) {
  const now = useNow();
  const step = rollout.steps[rollout.step - 1];
  if (step === undefined) {
    return null;
  }
  if (rollout.step_began_at === null) {
    return (
      <Text size="sm">
        {rollout.state === "paused"
          ? `Paused before step ${rollout.step}; version ${rollout.to_version} keeps ${shareOf(rollout)}\u00a0%.`
          : `Step ${rollout.step} begins within seconds, once acceptance prompts, if there are any, are passed.`}
      </Text>
    );
  }
  const hold = step.hold_s ?? 0;
  const wanted = step.min_requests ?? 0;
  const held = Math.min(hold, Math.max(0, (now - Date.parse(rollout.step_began_at)) / 1000));
  const met = Math.min(wanted, rollout.new.requests);
  const last = rollout.step === rollout.steps.length;
  return (
    <Stack gap={6}>
      <Bar label="Time held" share={hold === 0 ? 1 : held / hold}>
        {`${spanText(held)} of ${spanText(hold)}`}
      </Bar>
      <Bar label={`Requests of version ${rollout.to_version}`} share={wanted === 0 ? 1 : met / wanted}>
        {`${countText(rollout.new.requests)} of ${countText(wanted)}`}
      </Bar>
      <Text size="sm">{untilText(rollout.state === "paused", last, hold - held, wanted - met)}</Text>
    </Stack>
  );
}

function untilText(paused: boolean, last: boolean, seconds: number, requests: number): string {
  const next = last ? "It is promoted" : "The next step comes";
  if (paused) {
    return "Paused: it keeps this share, and still goes back by itself.";
  }
  const lacks = [];
  if (seconds >= 1) {
    lacks.push(`in ${spanText(seconds)}`);
  }
  if (requests > 0) {
    lacks.push(`after ${countText(requests)} more ${requests === 1 ? "request" : "requests"}`);
  }
  return lacks.length === 0 ? `${next} within seconds.` : `${next} ${lacks.join(", and ")}.`;
}

function Bar({ label, share, children }: { label: string; share: number; children: string }) {
  return (
    <div>
      <Text size="sm" className="figures">
        {`${label}: ${children}`}
      </Text>
      <Progress value={share * 100} aria-label={`${label}: ${children}`} transitionDuration={0} />
    </div>
  );
}

function useNow(): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
