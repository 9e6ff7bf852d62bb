import { Anchor, Button, Card, Checkbox, Group, Stack, Text, TextInput, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { type Failure, failureOf } from "../api/failure";
import { Confirm } from "../parts/confirm";
import { useUnsaved } from "../parts/edits";
import { useOnce } from "../parts/once";
import { Failed, Read } from "../parts/states";
import { Changes, type Draft, draftOf, PriceFields, priceIn, START } from "./price-fields";
import { Differences } from "./price-rows";
import { lastDays, nextMonth, quarter } from "./quarters";

type Found = Schemas["VersionWithPrices"];
type ReRating = Schemas["ReRatingOut"];

const LOOKED_AT_DAYS = 30;

/** Begins from the newest version, for most of it stays. */
export function NewPrices() {
  const read = useQuery({
    queryKey: ["price-books", "newest"],
    queryFn: async (): Promise<Found | null> => {
      const { data } = await heard(api.GET("/api/v1/price-books", { params: { query: { limit: 1 } } }));
      const [newest] = data;
      return newest === undefined
        ? null
        : heard(api.GET("/api/v1/price-books/{version}", { params: { path: { version: newest.version } } }));
    },
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  return (
    <Stack>
      <Anchor component={Link} to="/billing/prices" size="sm">
        All versions
      </Anchor>
      <Read of={read} what="the prices">
        {(before) => <VersionForm before={before} />}
      </Read>
    </Stack>
  );
}

interface Values {
  effective_from: string;
  currency: string;
  note: string;
  retroactive: boolean;
  prices: Draft[];
}

function VersionForm({ before }: { before: Found | null }) {
  const navigate = useNavigate();
  const client = useQueryClient();
  const once = useOnce();
  const [values, setValues] = useState<Values>(() => ({
    effective_from: nextMonth(),
    currency: before?.book.currency ?? "USD",
    note: "",
    retroactive: false,
    prices: before === null ? START : before.prices.map(draftOf),
  }));
  const [touched, setTouched] = useState(false);
  const [preview, setPreview] = useState<ReRating | null>(null);
  const [failure, setFailure] = useState<Failure | null>(null);
  const [busy, setBusy] = useState(false);
  const [asking, setAsking] = useState(false);
  useUnsaved(touched);
  const set = <Name extends keyof Values>(name: Name, value: Values[Name]) => {
    setTouched(true);
    setPreview(null); // it was of other prices
    setValues((now) => ({ ...now, [name]: value }));
  };
  const book = {
    ...values,
    effective_from: quarter(values.effective_from),
    prices: values.prices.map(priceIn),
  };
  const window = lastDays(LOOKED_AT_DAYS);
  const look = async () => {
    setBusy(true);
    setFailure(null);
    try {
      const body = { book, start: quarter(window.start), end: quarter(window.end) };
      setPreview(await heard(api.POST("/api/v1/price-books/preview", { body })));
    } catch (error) {
      setFailure(failureOf(error));
    } finally {
      setBusy(false);
    }
  };
  const create = async () => {
    const made = await heard(api.POST("/api/v1/price-books", { body: book }));
    setTouched(false);
    await client.invalidateQueries({ queryKey: ["price-books"] });
    await navigate({ to: "/billing/prices/$version", params: { version: String(made.book.version) } });
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(look);
  };
  return (
    <form onSubmit={submit}>
      <Stack>
        <Card withBorder>
          <Title order={2} size="h4" mb="sm">
            New version
          </Title>
          <Head values={values} set={set} failure={failure} fixed={before !== null} />
          <PriceFields
            prices={values.prices}
            failure={failure}
            onChange={(prices) => set("prices", prices)}
          />
          {failure !== null && <Failed error={failure} />}
          <Group mt="md">
            <Button type="submit" variant={preview === null ? "filled" : "default"} loading={busy}>
              Show what changes
            </Button>
            {preview !== null && (
              <Button onClick={() => setAsking(true)}>Create version {preview.version}…</Button>
            )}
          </Group>
        </Card>
        {preview !== null && (
          <Card withBorder component="section" aria-label="What changes">
            <Title order={2} size="h4" mb="sm">
              What changes
            </Title>
            <Stack>
              <Changes before={before?.prices ?? []} now={values.prices} />
              <Text size="sm">
                What was used in the last {LOOKED_AT_DAYS} days, had it been charged like this. Nothing that
                is charged already changes:
              </Text>
              {preview.data.length === 0 ? (
                <Text size="sm" c="dimmed">
                  Nothing was used in these days.
                </Text>
              ) : (
                <Differences of={preview} currency={values.currency} />
              )}
            </Stack>
          </Card>
        )}
      </Stack>
      {asking && preview !== null && (
        <Confirm
          title={`Create version ${preview.version}`}
          effect={`From ${book.effective_from} on, its ${book.prices.length} prices hold for all tenants, until a later version does. A version is never changed or removed.`}
          action="Create"
          dangerous={false}
          onConfirm={create}
          onClose={() => setAsking(false)}
        />
      )}
    </form>
  );
}

function Head({
  values,
  set,
  failure,
  fixed,
}: {
  values: Values;
  set: <Name extends keyof Values>(name: Name, value: Values[Name]) => void;
  failure: Failure | null;
  fixed: boolean;
}) {
  const error = (name: string) =>
    failure?.param === name || failure?.param === `book.${name}` ? failure.message : null;
  return (
    <Stack gap="sm" mb="md">
      <Group align="start" gap="sm">
        <TextInput
          type="datetime-local"
          label="Holds from (UTC)"
          required
          withAsterisk={false}
          step={900}
          error={error("effective_from")}
          value={values.effective_from}
          onChange={(event) => set("effective_from", event.currentTarget.value)}
        />
        <TextInput
          label="Currency"
          w={100}
          maxLength={3}
          disabled={fixed}
          error={error("currency")}
          value={values.currency}
          onChange={(event) => set("currency", event.currentTarget.value.toUpperCase())}
        />
        <TextInput
          label="Note"
          maxLength={500}
          value={values.note}
          onChange={(event) => set("note", event.currentTarget.value)}
          w={{ base: "100%", xs: 320 }}
        />
      </Group>
      <Checkbox
        label="It may begin in the past: for usage that has no price yet"
        checked={values.retroactive}
        onChange={(event) => set("retroactive", event.currentTarget.checked)}
      />
    </Stack>
  );
}
