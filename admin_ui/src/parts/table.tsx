import { Button, Group, Table, Text } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { Scrolls } from "./scrolls";
import { Read } from "./states";

export interface Column<Row> {
  title: string;
  /** Shown as its head, where the title alone says too little. */
  head?: ReactNode;
  /** Numbers stand at the end of their column. */
  end?: boolean;
  cell: (row: Row) => ReactNode;
}

interface PageOf<Row> {
  data: Row[];
  has_more: boolean;
  next_cursor: string | null;
}

interface Props<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: {
    data: PageOf<Row> | undefined;
    error: unknown;
    isPending: boolean;
    isPlaceholderData: boolean;
    dataUpdatedAt: number;
    refetch: () => unknown;
  };
  rowKey: (row: Row) => string;
  /** The place in the list, as the address of the page has it. */
  cursor: string | undefined;
  /** Its parameter of the address, where a page has two lists. */
  cursorName?: string;
  /** Whether its rows have nothing to focus: keys then scroll the table itself. */
  plain?: boolean;
  empty: ReactNode;
}

/** One page of a list, by keyset: the server filters and sorts, so 100,000 rows are as fast as ten. The cursor
 * is part of the address, and the browser's own history is the way back. */
export function DataTable<Row>({
  caption,
  columns,
  rows,
  rowKey,
  cursor,
  cursorName = "cursor",
  plain = false,
  empty,
}: Props<Row>) {
  return (
    <Read of={rows} what={caption}>
      {(page) =>
        page.data.length === 0 && cursor === undefined ? (
          empty
        ) : (
          <>
            <Scrolls minWidth={560} what={caption} hasStops={!plain}>
              <Table highlightOnHover aria-busy={rows.isPlaceholderData} verticalSpacing="xs">
                <caption className="off-screen">{caption}</caption>
                <Table.Thead>
                  <Table.Tr>
                    {columns.map((column) => (
                      <Table.Th key={column.title} ta={column.end ? "end" : "start"} scope="col">
                        {column.head ?? column.title}
                      </Table.Th>
                    ))}
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody className={rows.isPlaceholderData ? "waiting" : ""}>
                  {page.data.map((row) => (
                    <Table.Tr key={rowKey(row)}>
                      {columns.map((column) => (
                        <Table.Td key={column.title} ta={column.end ? "end" : "start"}>
                          {column.cell(row)}
                        </Table.Td>
                      ))}
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </Scrolls>
            <Pager cursor={cursor} name={cursorName} next={page.next_cursor} shown={page.data.length} />
          </>
        )
      }
    </Read>
  );
}

interface Place {
  cursor: string | undefined;
  name: string;
  next: string | null;
  shown: number;
}

function Pager({ cursor, name, next, shown }: Place) {
  const navigate = useNavigate();
  const go = (to: string | undefined) =>
    void navigate({
      to: ".",
      search: (before: Record<string, unknown>) => ({ ...before, [name]: to }),
    } as never);
  if (cursor === undefined && next === null) {
    return (
      <Text size="sm" c="dimmed">
        {shown} shown, which is all.
      </Text>
    );
  }
  return (
    <Group gap="xs" component="nav" aria-label="Pages">
      <Button variant="default" size="xs" disabled={cursor === undefined} onClick={() => go(undefined)}>
        First page
      </Button>
      <Button variant="default" size="xs" disabled={next === null} onClick={() => go(next ?? undefined)}>
        Next page
      </Button>
    </Group>
  );
}
