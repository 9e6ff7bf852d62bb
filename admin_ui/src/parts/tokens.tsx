import { Table } from "@mantine/core";
import type { ReactNode } from "react";
import type { Schemas } from "../api/client";
import { Count } from "./figures";
import { Money } from "./money";
import { Scrolls } from "./scrolls";

type Sum = Schemas["UsageSum"];

interface Props {
  caption: string;
  of: string;
  currency: string | null;
  total: Sum;
  rows: { key: string; name: ReactNode; sum: Sum | null }[];
}

/** Sums in rows, and what they come to: the server adds, this page doesn't. A row without a sum is not known. */
export function SumTable({ caption, of, currency, total, rows }: Props) {
  return (
    <Scrolls minWidth={620} what={caption}>
      <Table verticalSpacing="xs" highlightOnHover>
        <caption className="off-screen">{caption}</caption>
        <Table.Thead>
          <Table.Tr>
            <Table.Th scope="col">{of}</Table.Th>
            {["Requests", "Input tokens", "of them cached", "Output tokens", "Cost"].map((title) => (
              <Table.Th key={title} scope="col" ta="end">
                {title}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map(({ key, name, sum }) => (
            <Table.Tr key={key}>
              <Table.Td>{name}</Table.Td>
              {sum === null ? <NotKnown /> : <Cells sum={sum} currency={currency} />}
            </Table.Tr>
          ))}
        </Table.Tbody>
        <Table.Tfoot>
          <Table.Tr>
            <Table.Th scope="row">Total</Table.Th>
            <Cells sum={total} currency={currency} />
          </Table.Tr>
        </Table.Tfoot>
      </Table>
    </Scrolls>
  );
}

function Cells({ sum, currency }: { sum: Sum; currency: string | null }) {
  const counts = [sum.requests, sum.prompt_tokens, sum.cached_tokens, sum.completion_tokens];
  return (
    <>
      {counts.map((value, place) => (
        <Table.Td key={place} ta="end">
          <Count value={value} />
        </Table.Td>
      ))}
      <Table.Td ta="end">
        <Money amount={sum.amount} currency={currency} atLeast={sum.unpriced_tokens > 0} />
      </Table.Td>
    </>
  );
}

function NotKnown() {
  return (
    <Table.Td colSpan={5} ta="end" c="dimmed">
      not known yet
    </Table.Td>
  );
}
