import { Anchor, Card, Table, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { of } from "../live/fresh";
import { useLook } from "../live/live";
import { Clock } from "../parts/figures";
import { Scrolls } from "../parts/scrolls";
import { Empty, Read } from "../parts/states";
import { Address, TIERS, TierMark } from "./tier";

type Move = Schemas["MoveOut"];

const LOOK_MS = 5_000;
const MOST = 50;

/** Loads and evictions as they happen, newest first. */
export function MovesCard() {
  const look = useLook(LOOK_MS);
  const query = { limit: MOST, since: null };
  const moves = useQuery({
    queryKey: ["moves", query],
    queryFn: () => heard(api.GET("/api/v1/placement/moves", { params: { query } })),
    placeholderData: keepPreviousData,
    refetchInterval: look,
    meta: of("move"),
  });
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Loads and evictions
      </Title>
      <Read of={moves} what="the loads and evictions">
        {(found) =>
          found.data.length === 0 ? (
            <Empty title="Nothing has moved since this gateway started">
              <Text size="sm">What moves from now on appears here by itself.</Text>
            </Empty>
          ) : (
            <Scrolls minWidth={560} what="Loads and evictions, newest first">
              <Table verticalSpacing={4}>
                <caption className="off-screen">Loads and evictions, newest first</caption>
                <Table.Thead>
                  <Table.Tr>
                    {["When", "Adapter", "Replica", "What", "From", "To"].map((title) => (
                      <Table.Th key={title} scope="col">
                        {title}
                      </Table.Th>
                    ))}
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {found.data.map((move) => (
                    <MoveRow key={`${move.at} ${move.replica} ${move.artefact}`} move={move} />
                  ))}
                </Table.Tbody>
              </Table>
            </Scrolls>
          )
        }
      </Read>
    </Card>
  );
}

const RANK = { none: 0, host: 1, device: 2 } as const;

function MoveRow({ move }: { move: Move }) {
  const loaded = RANK[move.after] > RANK[move.before];
  return (
    <Table.Tr>
      <Table.Td>
        <Clock at={Date.parse(move.at)} />
      </Table.Td>
      <Table.Td>
        {move.adapter === null || move.tenant === null ? (
          <code className="mono">{move.artefact.slice(0, 12)}…</code>
        ) : (
          <Anchor component={Link} to={`/tenants/${move.tenant}/adapters/${move.adapter}`} size="sm">
            {move.adapter}@{move.version}
          </Anchor>
        )}
      </Table.Td>
      <Table.Td>
        <Address url={move.replica} />
      </Table.Td>
      <Table.Td>{loaded ? "loaded" : "evicted"}</Table.Td>
      <Table.Td>
        <Lay tier={move.before} />
      </Table.Td>
      <Table.Td>
        <Lay tier={move.after} />
      </Table.Td>
    </Table.Tr>
  );
}

function Lay({ tier }: { tier: Move["after"] }) {
  return tier === "none" ? (
    <Text size="xs" c="dimmed" title={TIERS.disk.says}>
      disk or store
    </Text>
  ) : (
    <TierMark tier={tier} home={false} />
  );
}
