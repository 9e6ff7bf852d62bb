import { Code, Table, Text } from "@mantine/core";
import type { Schemas } from "../api/client";
import { Moment, Mono } from "../parts/figures";
import { Scrolls } from "../parts/scrolls";

type Event = Schemas["RolloutEventOut"];
type Details = Record<string, unknown>;

/** Oldest first: the way as it was gone. */
export function RolloutEvents({ events }: { events: Event[] }) {
  return (
    <Scrolls minWidth={560} what="What happened to this rollout, oldest first">
      <Table verticalSpacing="xs">
        <caption className="off-screen">What happened to this rollout, oldest first</caption>
        <Table.Thead>
          <Table.Tr>
            <Table.Th scope="col">When</Table.Th>
            <Table.Th scope="col">What</Table.Th>
            <Table.Th scope="col">By</Table.Th>
            <Table.Th scope="col">On which figures</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {events.map((event) => (
            <Table.Tr key={`${event.at} ${event.event}`}>
              <Table.Td>
                <Moment at={event.at} />
              </Table.Td>
              <Table.Td>
                <Text size="sm">{wordsOf(event)}</Text>
              </Table.Td>
              <Table.Td>
                <Mono>{event.actor}</Mono>
              </Table.Td>
              <Table.Td>
                <FiguresOf event={event} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Scrolls>
  );
}

function wordsOf({ event, details }: Event): string {
  const step = details.step;
  switch (event) {
    case "start":
      return `Begun, in steps of ${listed(details.steps)} %`;
    case "step":
      return `Step ${step}: the new version has ${details.weight} %`;
    case "accepted":
      return `Step ${step}: ${details.passed} of ${details.prompts} acceptance prompts passed`;
    case "passed":
      return `Step ${step} passed`;
    case "pause":
      return `Paused in step ${step}`;
    case "resume":
      return `Resumed in step ${step}`;
    case "promote":
      return `Promoted in step ${step}${reasonOf(details)}`;
    case "rollback":
      return `Rolled back in step ${step}${reasonOf(details)}`;
    case "supersede":
      return `Superseded in step ${step}${reasonOf(details)}`;
    default:
      return event;
  }
}

function listed(value: unknown): string {
  return Array.isArray(value) ? value.join(", ") : "";
}

function reasonOf(details: Details): string {
  const reason = details.reason as Details | undefined;
  return reason === undefined ? "" : `. ${reason.rule}: ${reason.message}`;
}

function FiguresOf({ event }: { event: Event }) {
  const figures =
    event.event === "passed" ? event.details.figures : (event.details.reason as Details)?.figures;
  if (figures === undefined || figures === null || Object.keys(figures).length === 0) {
    return null;
  }
  return (
    <details>
      <summary>Figures</summary>
      <Code block className="command" tabIndex={0}>
        {JSON.stringify(figures, null, 1)}
      </Code>
    </details>
  );
}
