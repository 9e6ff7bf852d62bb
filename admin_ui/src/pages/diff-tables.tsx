import { Badge, Stack, Table, Text } from "@mantine/core";
import type { ReactNode } from "react";
import type { Schemas } from "../api/client";
import { Bytes, countText } from "../parts/figures";
import { Scrolls } from "../parts/scrolls";
import type { Diff } from "./adapter-diff";

interface Props {
  diff: Diff;
  all: boolean;
}

type Field = Schemas["FieldDiff"];

export function FieldsBesides({ diff, all }: Props) {
  const rows = diff.fields.filter((field) => all || field.changed);
  return (
    <Besides caption="Fields" diff={diff} first={["Of", "Field"]} num={rows.length} of={diff.fields.length}>
      {rows.map((field) => (
        <Table.Tr key={`${field.group} ${field.name}`}>
          <Table.Td>{field.group}</Table.Td>
          <Table.Th scope="row" fw={400}>
            <Changed is={field.changed && all}>{field.name}</Changed>
          </Table.Th>
          <Table.Td>
            <Value field={field} value={field.old} />
          </Table.Td>
          <Table.Td>
            <Value field={field} value={field.new} />
          </Table.Td>
        </Table.Tr>
      ))}
    </Besides>
  );
}

function Value({ field, value }: { field: Field; value: unknown }) {
  if (value === null || value === undefined) {
    return <None />;
  }
  if (field.group === "size" && typeof value === "number") {
    return <Bytes value={value} />;
  }
  return <span className="figures">{inWords(value)}</span>;
}

function inWords(value: unknown): string {
  if (typeof value === "number") {
    return Number.isInteger(value) ? countText(value) : figure(value);
  }
  if (Array.isArray(value) && value.every((each) => typeof each !== "object")) {
    return value.map((each) => (typeof each === "number" ? figure(each) : String(each))).join(", ");
  }
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Four digits: what a norm or a measure of a proof says. */
function figure(value: number): string {
  return String(Number(value.toPrecision(4)));
}

type Module = Schemas["ModuleFigures"];

export function ModulesBesides({ diff, all }: Props) {
  const rows = diff.modules.filter((module) => all || module.changed);
  return (
    <Besides
      caption="Modules"
      diff={diff}
      first={["Layer", "Module"]}
      num={rows.length}
      of={diff.modules.length}
    >
      {rows.map((row) => (
        <Table.Tr key={`${row.layer} ${row.site}`}>
          <Table.Td className="figures">{row.layer}</Table.Td>
          <Table.Th scope="row" fw={400}>
            <Changed is={row.changed && all}>{row.site}</Changed>
          </Table.Th>
          <Table.Td>
            <ModuleFigures module={row.old} beside={row.new} />
          </Table.Td>
          <Table.Td>
            <ModuleFigures module={row.new} beside={row.old} />
          </Table.Td>
        </Table.Tr>
      ))}
    </Besides>
  );
}

const MEASURES: [string, (module: Module) => number][] = [
  ["rank", (module) => module.rank],
  ["scale", (module) => module.scale],
  ["|A|", (module) => module.a_norm],
  ["|B|", (module) => module.b_norm],
  ["largest", (module) => module.largest],
];

function ModuleFigures({ module, beside }: { module: Module | null; beside: Module | null }) {
  if (module === null) {
    return <Text size="sm">as the base</Text>;
  }
  return (
    <span className="figures">
      {MEASURES.map(([name, of], place) => {
        const differs = beside !== null && of(beside) !== of(module);
        return (
          <span key={name}>
            {place > 0 && ", "}
            {differs ? <strong>{`${name} ${figure(of(module))}`}</strong> : `${name} ${figure(of(module))}`}
          </span>
        );
      })}
    </span>
  );
}

export function AnswersBesides({ diff, all }: Props) {
  const rows = diff.answers.filter((answer) => all || answer.changed);
  return (
    <Besides caption="Answers" diff={diff} first={["Prompt"]} num={rows.length} of={diff.answers.length}>
      {rows.map((row) => (
        <Table.Tr key={JSON.stringify(row.input)}>
          <Table.Th scope="row" fw={400} className="top">
            <Text size="sm" lineClamp={6}>
              {typeof row.input === "string" ? row.input : JSON.stringify(row.input)}
            </Text>
          </Table.Th>
          <Table.Td className="top">
            <Answer answer={row.old} />
          </Table.Td>
          <Table.Td className="top">
            <Answer answer={row.new} />
          </Table.Td>
        </Table.Tr>
      ))}
    </Besides>
  );
}

function Answer({ answer }: { answer: Schemas["Answered"] | null }) {
  if (answer === null) {
    return <Text size="sm">not asked</Text>;
  }
  return (
    <Stack gap={4} align="start">
      <Badge color={answer.passed ? "teal" : "red"}>{answer.passed ? "passed" : "not passed"}</Badge>
      <Text size="sm" className="answer">
        {answer.text}
      </Text>
      {!answer.passed && <Text size="sm" c="dimmed">{`Expected: ${answer.expected}`}</Text>}
    </Stack>
  );
}

function None() {
  return (
    <Text span size="sm" c="dimmed">
      none
    </Text>
  );
}

function Changed({ is, children }: { is: boolean; children: string }) {
  return is ? <strong>{children}</strong> : children;
}

interface BesidesProps {
  caption: string;
  diff: Diff;
  first: string[];
  num: number;
  of: number;
  children: ReactNode;
}

function Besides({ caption, diff, first, num, of, children }: BesidesProps) {
  if (num === 0) {
    return <Text size="sm">{of === 0 ? "Neither has any." : "Nothing differs."}</Text>;
  }
  return (
    <Scrolls minWidth={620} what={caption}>
      <Table verticalSpacing={6}>
        <caption className="off-screen">{`${caption}, those that changed first`}</caption>
        <Table.Thead>
          <Table.Tr>
            {[...first, `Version ${diff.old}`, `Version ${diff.new}`].map((title) => (
              <Table.Th key={title} scope="col">
                {title}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>{children}</Table.Tbody>
      </Table>
    </Scrolls>
  );
}
