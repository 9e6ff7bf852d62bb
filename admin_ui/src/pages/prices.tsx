import { Badge, Button, Card, Group, Select, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Moment } from "../parts/figures";
import { TextFilter } from "../parts/filters";
import { Empty, Read } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import type { PricesSearch } from "../routes/billing";
import { useSession } from "../session/hooks";
import { PriceTable } from "./price-rows";

type Book = Schemas["PriceBookOut"];

export function PricesPage() {
  const session = useSession();
  const search = useSearch({ from: "/inside/billing/prices" });
  const rows = useQuery({
    queryKey: ["price-books", search.cursor],
    queryFn: () =>
      heard(
        api.GET("/api/v1/price-books", { params: { query: { limit: 20, cursor: search.cursor ?? null } } }),
      ),
    placeholderData: keepPreviousData,
  });
  const inForce = rows.data?.in_force ?? null;
  return (
    <Stack>
      <Card withBorder>
        <Group justify="space-between" mb="sm">
          <Title order={2} size="h4">
            Versions
          </Title>
          {session.can.includes("create_price_book") && (
            <Button component={Link} to="/billing/prices/new">
              New version…
            </Button>
          )}
        </Group>
        <DataTable
          caption="Versions of the price book, newest first"
          columns={columnsOf(inForce)}
          rows={rows}
          rowKey={(book) => String(book.version)}
          cursor={search.cursor}
          empty={
            <Empty title="There is no price yet" command="motet billing set-prices prices.json">
              <Text size="sm">
                Usage is counted all the same, and charged as soon as a version covers it.
              </Text>
            </Empty>
          }
        />
      </Card>
      {inForce !== null && <Choice search={search} />}
    </Stack>
  );
}

function columnsOf(inForce: number | null): Column<Book>[] {
  return [
    {
      title: "Version",
      cell: (book) => (
        <Link to="/billing/prices/$version" params={{ version: String(book.version) }}>
          Version {book.version}
        </Link>
      ),
    },
    { title: "State", cell: (book) => <BookState book={book} inForce={inForce} /> },
    { title: "Holds from", cell: (book) => <Moment at={book.effective_from} /> },
    { title: "Currency", cell: (book) => book.currency },
    { title: "Note", cell: (book) => <Text size="sm">{book.note}</Text> },
    { title: "Made", cell: (book) => <Moment at={book.created_at} /> },
    { title: "By", cell: (book) => <Text size="sm">{book.created_by}</Text> },
  ];
}

function BookState({ book, inForce }: { book: Book; inForce: number | null }) {
  if (book.version === inForce) {
    return <Badge color="teal">in force</Badge>;
  }
  return new Date(book.effective_from) > new Date() ? (
    <Badge color="blue">planned</Badge>
  ) : (
    <Badge color="gray">not in force</Badge>
  );
}

/** Which price holds now for a piece of usage, and why. */
function Choice({ search }: { search: PricesSearch }) {
  const navigate = useNavigate({ from: "/billing/prices" });
  const go = (next: Partial<PricesSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...next }), replace: true, resetScroll: false });
  const bases = useQuery({
    queryKey: ["bases"],
    queryFn: () => heard(api.GET("/api/v1/bases", { params: { query: { limit: 50 } } })),
  });
  const served = bases.data?.data.find((base) => base.served) ?? bases.data?.data[0];
  const base = search.base ?? served?.id;
  const query = {
    base_id: base ?? "",
    service_class: search.service_class ?? "standard",
    owner: search.adapter === undefined ? null : (search.owner ?? null),
    adapter: search.owner === undefined ? null : (search.adapter ?? null),
  };
  const choice = useQuery({
    queryKey: ["price-choice", query],
    queryFn: () => heard(api.GET("/api/v1/price-choice", { params: { query } })),
    enabled: base !== undefined,
    placeholderData: keepPreviousData,
  });
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Which price holds now
      </Title>
      <Group align="end" gap="sm" mb="md">
        <Select
          label="Base"
          data={(bases.data?.data ?? []).map((each) => ({ value: each.id, label: each.name }))}
          value={base ?? null}
          onChange={(value) => go({ base: value ?? undefined })}
          allowDeselect={false}
        />
        <Select
          label="Service class"
          data={["interactive", "standard", "batch"]}
          value={query.service_class}
          onChange={(value) => go({ service_class: value as PricesSearch["service_class"] })}
          allowDeselect={false}
        />
        <TextFilter label="Adapter's tenant (id)" value={search.owner} onChange={(owner) => go({ owner })} />
        <TextFilter label="Adapter" value={search.adapter} onChange={(adapter) => go({ adapter })} />
      </Group>
      {base !== undefined && (
        <Read of={choice} what="the price">
          {(found) => (
            <Stack gap="xs">
              <Text size="sm">
                Version {found.version}, in {found.currency} for a million tokens. {found.reason}
              </Text>
              <PriceTable
                caption="The price that holds, and those that it beat"
                prices={[found.winner, ...found.beaten]}
                aside={{
                  title: "Holds",
                  cell: (price) =>
                    price.id === found.winner.id ? <Badge color="teal">this one</Badge> : "beaten",
                }}
              />
              <Text size="xs" c="dimmed">
                “Answer” is for answers out of the response cache.
              </Text>
            </Stack>
          )}
        </Read>
      )}
    </Card>
  );
}
