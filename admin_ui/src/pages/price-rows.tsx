import { Table } from "@mantine/core";
import type { ReactNode } from "react";
import type { Schemas } from "../api/client";
import { Mono } from "../parts/figures";
import { Money } from "../parts/money";
import { Scrolls } from "../parts/scrolls";

export type Price = Schemas["PriceOut"];

export const PRICES = ["input", "cached_input", "output", "answer_input", "answer_output"] as const;
export const PRICE_NAMES: Record<(typeof PRICES)[number], string> = {
  input: "Input",
  cached_input: "Cached input",
  output: "Output",
  answer_input: "Answer, in",
  answer_output: "Answer, out",
};
const KINDS = { base: "The base itself", any_adapter: "Any adapter", adapter: "One adapter" } as const;

/** Of a million tokens each. `aside`: one more column at the end. */
export function PriceTable({
  caption,
  prices,
  aside,
}: {
  caption: string;
  prices: Price[];
  aside?: { title: string; cell: (price: Price) => ReactNode };
}) {
  return (
    <Scrolls minWidth={720} what={caption}>
      <Table verticalSpacing="xs">
        <caption className="off-screen">{caption}</caption>
        <Table.Thead>
          <Table.Tr>
            <Table.Th scope="col">For</Table.Th>
            <Table.Th scope="col">Service class</Table.Th>
            {PRICES.map((name) => (
              <Table.Th key={name} scope="col" ta="end">
                {PRICE_NAMES[name]}
              </Table.Th>
            ))}
            {aside !== undefined && <Table.Th scope="col">{aside.title}</Table.Th>}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {prices.map((price) => (
            <Table.Tr key={price.id}>
              <Table.Td>
                <ForWhat price={price} />
              </Table.Td>
              <Table.Td>{price.service_class ?? "any"}</Table.Td>
              {PRICES.map((name) => (
                <Table.Td key={name} ta="end" className="figures">
                  {price[name]}
                </Table.Td>
              ))}
              {aside !== undefined && <Table.Td>{aside.cell(price)}</Table.Td>}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Scrolls>
  );
}

export function ForWhat({ price }: { price: Pick<Price, "model" | "owner" | "adapter" | "base_id"> }) {
  return (
    <>
      {KINDS[price.model]}
      {price.adapter !== null && (
        <>
          {": "}
          <Mono>{`${price.adapter} of ${price.owner}`}</Mono>
        </>
      )}
      {price.base_id !== null && (
        <>
          {", base "}
          <Mono>{price.base_id.slice(0, 12)}</Mono>
        </>
      )}
    </>
  );
}

type ReRating = Schemas["ReRatingOut"];

/** What usage came to and would come to, tenant by tenant. */
export function Differences({ of, currency }: { of: ReRating; currency: string }) {
  return (
    <Scrolls minWidth={560} what="What changes, tenant by tenant">
      <Table verticalSpacing="xs">
        <caption className="off-screen">What changes, tenant by tenant</caption>
        <Table.Thead>
          <Table.Tr>
            <Table.Th scope="col">Tenant</Table.Th>
            {["Charged now", `Under version ${of.version}`, "Difference"].map((title) => (
              <Table.Th key={title} scope="col" ta="end">
                {title}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {of.data.map((each) => (
            <Table.Tr key={each.tenant}>
              <Table.Td>
                <span title={each.tenant}>{each.name}</span>
              </Table.Td>
              {[each.before, each.after, each.difference].map((amount, place) => (
                <Table.Td key={place} ta="end">
                  <Money amount={amount} currency={currency} />
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Scrolls>
  );
}
