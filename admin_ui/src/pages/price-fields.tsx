import { Badge, Button, Select, Table, Text, TextInput } from "@mantine/core";
import { useRef } from "react";
import type { Schemas } from "../api/client";
import type { Failure } from "../api/failure";
import { Scrolls } from "../parts/scrolls";
import { ForWhat, PRICE_NAMES, PRICES, type Price } from "./price-rows";

type PriceIn = Schemas["PriceIn"];
type Class = NonNullable<PriceIn["service_class"]>;

/** A row while it is typed. `key` tells it from the others. */
export interface Draft extends Omit<Price, "id"> {
  key: string;
}

const NOTHING = { base_id: null, owner: null, adapter: null, service_class: null };
const FREE = { input: "0", cached_input: "0", output: "0", answer_input: "0", answer_output: "0" };

/** What each version needs, so that nothing is without a price. */
export const START: Draft[] = [
  { key: "base", model: "base", ...NOTHING, ...FREE },
  { key: "any", model: "any_adapter", ...NOTHING, ...FREE },
];

export function draftOf({ id, ...price }: Price): Draft {
  return { key: id, ...price };
}

export function priceIn({ key: _, ...price }: Draft): PriceIn {
  return {
    ...price,
    owner: price.owner || null,
    adapter: price.adapter || null,
    service_class: price.service_class as Class | null,
  };
}

/** A price for each kind of tokens, of a million of them. */
export function PriceFields({
  prices,
  failure,
  onChange,
}: {
  prices: Draft[];
  failure: Failure | null;
  onChange: (prices: Draft[]) => void;
}) {
  const change = (key: string, fields: Partial<Draft>) =>
    onChange(prices.map((each) => (each.key === key ? { ...each, ...fields } : each)));
  const added = useRef(0); // for keys: the browser's random ids are for https alone
  const add = () => {
    const [, any] = prices;
    const like = any ?? START[1];
    if (like !== undefined) {
      onChange([
        ...prices,
        { ...like, key: `added ${added.current++}`, model: "any_adapter", service_class: "batch" },
      ]);
    }
  };
  return (
    <>
      <Table.ScrollContainer minWidth={980}>
        <Table verticalSpacing={4}>
          <caption className="off-screen">Prices of the new version, for a million tokens</caption>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">For</Table.Th>
              <Table.Th scope="col">Service class</Table.Th>
              {PRICES.map((name) => (
                <Table.Th key={name} scope="col">
                  {PRICE_NAMES[name]}
                </Table.Th>
              ))}
              <Table.Th scope="col">
                <span className="off-screen">Remove</span>
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {prices.map((price, place) => (
              <PriceRow
                key={price.key}
                price={price}
                place={place}
                failure={failure}
                onChange={(fields) => change(price.key, fields)}
                onRemove={() => onChange(prices.filter((each) => each.key !== price.key))}
              />
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      <Button size="xs" variant="default" onClick={add}>
        Add a price
      </Button>
    </>
  );
}

interface RowProps {
  price: Draft;
  place: number;
  failure: Failure | null;
  onChange: (fields: Partial<Draft>) => void;
  onRemove: () => void;
}

function PriceRow({ price, place, failure, onChange, onRemove }: RowProps) {
  const row = `row ${place + 1}`;
  const wrong = (name: string) =>
    failure?.param?.replace("book.", "") === `prices[${place}].${name}` ? failure.message : null;
  const whole = failure?.param?.replace("book.", "") === `prices[${place}]` ? failure.message : null;
  return (
    <Table.Tr>
      <Table.Td>
        <Select
          aria-label={`For, ${row}`}
          size="xs"
          w={150}
          data={[
            { value: "base", label: "The base itself" },
            { value: "any_adapter", label: "Any adapter" },
            { value: "adapter", label: "One adapter" },
          ]}
          value={price.model}
          onChange={(model) =>
            onChange({
              model: model as Draft["model"],
              ...(model === "adapter" ? {} : { owner: null, adapter: null }),
            })
          }
          allowDeselect={false}
        />
        {price.model === "adapter" && (
          <>
            <TextInput
              aria-label={`Adapter, ${row}`}
              placeholder="Adapter"
              size="xs"
              value={price.adapter ?? ""}
              onChange={(event) => onChange({ adapter: event.currentTarget.value })}
            />
            <TextInput
              aria-label={`Tenant of the adapter, ${row}`}
              placeholder="Its tenant's id"
              size="xs"
              value={price.owner ?? ""}
              onChange={(event) => onChange({ owner: event.currentTarget.value.trim() })}
            />
          </>
        )}
        {whole !== null && (
          <Text size="xs" c="var(--mantine-color-error)">
            {whole}
          </Text>
        )}
      </Table.Td>
      <Table.Td>
        <Select
          aria-label={`Class, ${row}`}
          size="xs"
          w={120}
          data={[{ value: "", label: "any" }, "interactive", "standard", "batch"]}
          value={price.service_class ?? ""}
          onChange={(value) => onChange({ service_class: (value || null) as Class | null })}
          allowDeselect={false}
        />
      </Table.Td>
      {PRICES.map((name) => (
        <Table.Td key={name}>
          <TextInput
            aria-label={`${PRICE_NAMES[name]}, ${row}`}
            size="xs"
            inputMode="decimal"
            error={wrong(name)}
            value={price[name]}
            onChange={(event) => onChange({ [name]: event.currentTarget.value.trim() })}
          />
        </Table.Td>
      ))}
      <Table.Td>
        <Button
          size="compact-xs"
          variant="subtle"
          color="gray"
          aria-label={`Remove ${row}`}
          onClick={onRemove}
        >
          Remove
        </Button>
      </Table.Td>
    </Table.Tr>
  );
}

/** What is another than in the version before: prices changed, rows added and taken away. */
export function Changes({ before, now }: { before: Price[]; now: Draft[] }) {
  const known = new Map(before.map((price) => [nameOf(price), price]));
  const kept = new Set(now.map(nameOf));
  const rows = [
    ...now.flatMap((price) => changesOf(known.get(nameOf(price)), price)),
    ...before
      .filter((price) => !kept.has(nameOf(price)))
      .map((price) => ({ price, what: "removed", from: "", to: "" })),
  ];
  if (rows.length === 0) {
    return <Text size="sm">No price is another than in the version before.</Text>;
  }
  return (
    <Scrolls minWidth={480} what="Prices that change">
      <Table verticalSpacing={4}>
        <caption className="off-screen">Prices that change</caption>
        <Table.Thead>
          <Table.Tr>
            {["For", "Class", "Price"].map((title) => (
              <Table.Th key={title} scope="col">
                {title}
              </Table.Th>
            ))}
            <Table.Th scope="col" ta="end">
              Before
            </Table.Th>
            <Table.Th scope="col" ta="end">
              New
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map(({ price, what, from, to }) => (
            <Table.Tr key={`${nameOf(price)} ${what}`}>
              <Table.Td>
                <ForWhat price={price} />
              </Table.Td>
              <Table.Td>{price.service_class ?? "any"}</Table.Td>
              <Table.Td>{what === "removed" ? <Badge color="red">removed</Badge> : what}</Table.Td>
              <Table.Td ta="end" className="figures">
                {from}
              </Table.Td>
              <Table.Td ta="end" className="figures">
                {to}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Scrolls>
  );
}

type Selectors = Pick<Price, "model" | "base_id" | "owner" | "adapter" | "service_class">;

function nameOf(price: Selectors): string {
  return JSON.stringify([price.model, price.base_id, price.owner, price.adapter, price.service_class]);
}

function changesOf(before: Price | undefined, now: Draft) {
  return PRICES.filter((name) => before === undefined || !samePrice(before[name], now[name])).map((name) => ({
    price: now,
    what: PRICE_NAMES[name],
    from: before?.[name] ?? "–",
    to: now[name],
  }));
}

/** `0.15` is `0.150000`. */
function samePrice(one: string, other: string): boolean {
  const plain = (text: string) => {
    const [whole = "", fraction = ""] = text.split(".");
    return `${whole.replace(/^0+/, "") || "0"}.${fraction.padEnd(6, "0")}`;
  };
  return plain(one) === plain(other);
}
