import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, heard } from "../api/client";
import { failureOf } from "../api/failure";
import { of } from "../live/fresh";
import { tierWord } from "../pages/tier";
import { Count } from "../parts/figures";
import { Money } from "../parts/money";

const LOOK_MS = 1_000;
const TRIES = 60;

/** What an answer was billed with, as soon as the ledger has it: what was stopped, too. */
export function Billed({ tenant, request }: { tenant: string; request: string }) {
  const read = useQuery({
    queryKey: ["tenant", tenant, "answer", request, "billed"],
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
    refetchInterval: ({ state }) => (isOver(state) ? false : LOOK_MS),
    staleTime: Number.POSITIVE_INFINITY,
    meta: of(), // it asks by itself: each answer of a conversation would ask at each change of the tenant
  });
  const billed = read.data?.billed ?? null;
  if (billed === null) {
    return (
      <Text size="xs" c="dimmed">
        {read.error === null
          ? "Its bill is on its way: the request's own page will have it, too."
          : `Its bill can't be read now: ${failureOf(read.error).message}`}
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
      <Money amount={billed.amount} currency={billed.currency} />.
      {billed.tier !== null && billed.adapter !== null && <> The adapter lay in: {tierWord(billed.tier)}.</>}
    </Text>
  );
}

interface Looks {
  data: { billed: unknown } | undefined;
  dataUpdateCount: number;
  errorUpdateCount: number;
}

function isOver({ data, dataUpdateCount, errorUpdateCount }: Looks): boolean {
  return Boolean(data?.billed) || dataUpdateCount + errorUpdateCount > TRIES;
}
