import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, heard } from "../api/client";
import { failureOf } from "../api/failure";
import { Count } from "../parts/figures";

const LOOK_MS = 1_000;
const TRIES = 60;
const LEAST = 0.000_001;

/** What an answer was billed with, as soon as the ledger has it: what was stopped, too. */
export function Billed({ tenant, request }: { tenant: string; request: string }) {
  const read = useQuery({
    queryKey: ["tenant", tenant, "receipt", request],
    queryFn: async () => {
      try {
        const params = { path: { tenant, request_id: request } };
        return await heard(api.GET("/api/v1/tenants/{tenant}/usage/{request_id}/receipt", { params }));
      } catch (error) {
        if (failureOf(error).status === 404) {
          return { billed: null }; // on another machine, for a second
        }
        throw error;
      }
    },
    refetchInterval: ({ state }) => (state.data?.billed || state.dataUpdateCount > TRIES ? false : LOOK_MS),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const billed = read.data?.billed ?? null;
  if (billed === null) {
    return (
      <Text size="xs" c="dimmed">
        Its bill is on its way.
      </Text>
    );
  }
  return (
    <Text size="xs">
      <Count value={billed.input_tokens} unit="tokens in" />
      {billed.cached_tokens > 0 && (
        <>
          {" "}
          (<Count value={billed.cached_tokens} unit="cached" />)
        </>
      )}
      , <Count value={billed.output_tokens} unit="out" />.{" "}
      <Cost amount={billed.amount} currency={billed.currency} />.
      {billed.tier !== null && billed.adapter !== null && <> The adapter lay in: {billed.tier}.</>}
    </Text>
  );
}

/** Exact on hover. What has no price is not free. */
export function Cost({ amount, currency }: { amount: string | null; currency: string | null }) {
  if (amount === null || currency === null) {
    return (
      <span title="No version of the price book held when it ended, or none is known">no price known</span>
    );
  }
  return (
    <span className="figures" title={`${amount} ${currency}, exactly`}>
      {costText(amount, currency)}
    </span>
  );
}

/** From one of the currency on two decimals, below it three figures; never rounded to nothing. */
export function costText(amount: string, currency: string): string {
  const value = Number(amount);
  if (value === 0) {
    return "–";
  }
  const least = value < LEAST;
  const shown = least ? LEAST : value;
  const decimals =
    shown >= 1
      ? { minimumFractionDigits: 2, maximumFractionDigits: 2 }
      : { minimumSignificantDigits: 1, maximumSignificantDigits: 3 };
  const text = new Intl.NumberFormat(undefined, { style: "currency", currency, ...decimals }).format(shown);
  return least ? `<${text}` : text;
}
