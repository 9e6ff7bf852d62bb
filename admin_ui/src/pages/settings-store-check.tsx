import { Alert, Badge, Drawer, Stack, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, heard, type Schemas } from "../api/client";
import { Count, Moment, Mono } from "../parts/figures";
import { Scrolls } from "../parts/scrolls";
import { Read } from "../parts/states";
import { Row } from "./tenant-overview";

type Check = Schemas["CheckOut"];
const LOOK_MS = 1_000; // until it has ended

interface Example {
  what: string;
  path: string;
}

/** In the order in which they are read; what a check counts is the API's. */
const COUNTS: Record<string, string> = {
  stored: "Artefacts in the store",
  kept: "Artefacts that versions keep",
  checked: "Read against their checksums",
  orphans: "Orphans: no version keeps them",
  missing: "Missing",
  truncated: "Of another length",
  corrupt: "Corrupt",
  unfinished: "Puts that never ended",
  leftovers: "Folders of killed processes",
  young: "Too young to say",
  others: "Objects of something else",
  removed: "Removed by this check",
  discarded: "Discarded by this check",
  marked_lost: "Marked as lost by this check",
  found_again: "Found again by this check",
};

export function CheckState({ check }: { check: Check }) {
  if (check.state === "failed") {
    return <Badge color="red">failed</Badge>;
  }
  if (check.state !== "done") {
    return <Badge color="indigo">{check.state}</Badge>;
  }
  return <Badge color={check.clean ? "teal" : "orange"}>{check.clean ? "clean" : "not clean"}</Badge>;
}

export function CheckPanel({ id, onClose }: { id: string; onClose: () => void }) {
  const read = useQuery({
    queryKey: ["store", "checks", id],
    queryFn: () => heard(api.GET("/api/v1/store/fsck/{check_id}", { params: { path: { check_id: id } } })),
    refetchInterval: ({ state }) => (state.data?.ended_at ? false : LOOK_MS),
  });
  return (
    <Drawer
      opened
      onClose={onClose}
      position="right"
      size="lg"
      title="Check of the store"
      closeButtonProps={{ "aria-label": "Close" }}
    >
      <Read of={read} what="the check">
        {(check) => (
          <Stack>
            <Table variant="vertical" layout="auto">
              <Table.Tbody>
                <Row name="State">
                  <CheckState check={check} />
                </Row>
                <Row name="Asked">
                  <Moment at={check.asked_at} />
                </Row>
                <Row name="By">
                  <Mono>{check.asked_by}</Mono>
                </Row>
                <Row name="Ended">
                  <Moment at={check.ended_at} absent="not yet" />
                </Row>
              </Table.Tbody>
            </Table>
            {check.error !== null && (
              <Alert color="red" role="alert" title="The store can't be checked">
                {check.error}
              </Alert>
            )}
            {check.found !== null && <Findings found={check.found} />}
          </Stack>
        )}
      </Read>
    </Drawer>
  );
}

function Findings({ found }: { found: Record<string, unknown> }) {
  const counts = Object.entries(COUNTS).filter(([name]) => typeof found[name] === "number");
  const examples = (found.examples as Example[] | undefined) ?? [];
  return (
    <>
      <Table>
        <caption className="off-screen">What it found</caption>
        <Table.Tbody>
          {counts.map(([name, label]) => (
            <Table.Tr key={name}>
              <Table.Th scope="row" fw={400}>
                {label}
              </Table.Th>
              <Table.Td ta="end">
                <Count value={Number(found[name])} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      {examples.length > 0 && (
        <>
          <Text size="sm">The first {examples.length} things that are wrong:</Text>
          <Scrolls minWidth={320} what="What is wrong">
            <Table>
              <Table.Tbody>
                {examples.map((example) => (
                  <Table.Tr key={`${example.what} ${example.path}`}>
                    <Table.Td>{example.what}</Table.Td>
                    <Table.Td>
                      <Mono>{example.path}</Mono>
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Scrolls>
        </>
      )}
    </>
  );
}
