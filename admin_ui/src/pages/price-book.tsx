import { Anchor, Button, Card, Group, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { Confirm } from "../parts/confirm";
import { countText, Moment } from "../parts/figures";
import { useOnce } from "../parts/once";
import { Failed, Read } from "../parts/states";
import { useSession } from "../session/hooks";
import { Differences, PriceTable } from "./price-rows";
import { lastDays, quarter } from "./quarters";
import { Row } from "./tenant-overview";

type Found = Schemas["VersionWithPrices"];
type ReRating = Schemas["ReRatingOut"];

export function PriceBookPage() {
  const session = useSession();
  const { version } = useParams({ from: "/inside/billing/prices/$version" });
  const read = useQuery({
    queryKey: ["price-book", version],
    queryFn: () =>
      heard(api.GET("/api/v1/price-books/{version}", { params: { path: { version: Number(version) } } })),
    staleTime: Number.POSITIVE_INFINITY, // versions never change
  });
  return (
    <Stack>
      <Anchor component={Link} to="/billing/prices" size="sm">
        All versions
      </Anchor>
      <Read of={read} what="the prices">
        {(found) => (
          <>
            <About found={found} />
            {session.can.includes("rerate_usage") && <ReRate key={found.book.version} found={found} />}
          </>
        )}
      </Read>
    </Stack>
  );
}

function About({ found: { book, prices } }: { found: Found }) {
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Version {book.version}
      </Title>
      <Table variant="vertical" layout="auto" mb="md">
        <Table.Tbody>
          <Row name="Holds from">
            <Moment at={book.effective_from} />
          </Row>
          <Row name="Currency">{book.currency}, for a million tokens</Row>
          <Row name="Note">{book.note || "–"}</Row>
          <Row name="Made">
            <Moment at={book.created_at} />, by {book.created_by}
          </Row>
        </Table.Tbody>
      </Table>
      <PriceTable caption={`Prices of version ${book.version}`} prices={prices} />
    </Card>
  );
}

/** Moves what is charged already under this version: looked at first, then done. */
function ReRate({ found: { book } }: { found: Found }) {
  const client = useQueryClient();
  const once = useOnce();
  const [values, setValues] = useState(() => ({ ...lastDays(30), tenant: "" }));
  const [told, setTold] = useState<ReRating | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [asking, setAsking] = useState(false);
  const set = (name: keyof typeof values, value: string) => {
    setTold(null); // it was of another window
    setValues((before) => ({ ...before, [name]: value }));
  };
  const run = (dryRun: boolean) =>
    heard(
      api.POST("/api/v1/price-books/{version}/re-ratings", {
        params: { path: { version: book.version } },
        body: {
          start: quarter(values.start),
          end: quarter(values.end),
          tenant: values.tenant === "" ? null : values.tenant,
          dry_run: dryRun,
        },
      }),
    );
  const look = async () => {
    setError(null);
    try {
      setTold(await run(true));
    } catch (failure) {
      setTold(null);
      setError(failure);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(look);
  };
  const rows = told?.data.reduce((sum, each) => sum + each.charges, 0) ?? 0;
  return (
    <Card withBorder>
      <Title order={2} size="h4">
        Rate usage anew under this version
      </Title>
      <Text size="sm" c="dimmed" mb="sm">
        What is charged is never changed: reversals and new charges are added, those of closed months to the
        month that is open.
      </Text>
      <form onSubmit={submit}>
        <Group align="end" gap="sm">
          <Quarter label="From (UTC)" value={values.start} onChange={(value) => set("start", value)} />
          <Quarter label="To, exclusive (UTC)" value={values.end} onChange={(value) => set("end", value)} />
          <TextInput
            label="Tenant (id), or all"
            value={values.tenant}
            onChange={(event) => set("tenant", event.currentTarget.value.trim())}
          />
          <Button type="submit" variant="default">
            Show what changes
          </Button>
        </Group>
      </form>
      {error !== null && <Failed error={error} />}
      {told !== null && (
        <Stack mt="md" gap="sm">
          {rows === 0 ? (
            <Text role="status">Nothing changes: it is charged like this, or nothing was used.</Text>
          ) : (
            <>
              <Differences of={told} currency={book.currency} />
              <Group>
                {told.dry_run ? (
                  <Button color="red.9" onClick={() => setAsking(true)}>
                    Rate anew…
                  </Button>
                ) : (
                  <Text role="status">
                    Done: {countText(rows, rows === 1 ? "charge was" : "charges were")} added.
                  </Text>
                )}
              </Group>
            </>
          )}
        </Stack>
      )}
      {asking && told !== null && (
        <Confirm
          title={`Rate usage anew under version ${book.version}`}
          effect={`${countText(rows, rows === 1 ? "charge is" : "charges are")} added for ${countText(told.data.length, told.data.length === 1 ? "tenant" : "tenants")}, from ${told.start} to ${told.end}. It is told in the audit log, and only another re-rating takes it back.`}
          typed={`version ${book.version}`}
          action="Rate anew"
          onConfirm={async () => {
            setTold(await run(false));
            await client.invalidateQueries({ queryKey: ["billing"] });
          }}
          onClose={() => setAsking(false)}
        />
      )}
    </Card>
  );
}

function Quarter({
  label,
  value,
  onChange,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
}) {
  return (
    <TextInput
      type="datetime-local"
      label={label}
      required
      withAsterisk={false}
      step={900}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}
