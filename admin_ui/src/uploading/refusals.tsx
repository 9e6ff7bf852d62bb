import { Alert, Stack, Table } from "@mantine/core";
import type { Failure } from "../api/failure";
import { Mono } from "../parts/figures";
import { allowedOf, fixOf } from "./fixes";
import type { Refusal } from "./refusal";

/** What is wrong, where, what would be right, and what to do about it. */
export function Refusals({ title, refusals }: { title: string; refusals: Refusal[] }) {
  return (
    <Alert color="red" title={title} role="alert">
      <Stack gap="md">
        {refusals.map((refusal) => (
          <Table variant="vertical" layout="auto" key={`${refusal.place} ${refusal.found}`}>
            <Table.Tbody>
              <Row name="Where">
                <Mono>{refusal.place}</Mono>
              </Row>
              <Row name="Found">{refusal.found}</Row>
              <Row name="Allowed">{refusal.allowed}</Row>
              <Row name="What to do">{refusal.fix}</Row>
            </Table.Tbody>
          </Table>
        ))}
      </Stack>
    </Alert>
  );
}

function Row({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <Table.Tr>
      <Table.Th w="7rem">{name}</Table.Th>
      <Table.Td className="breaks">{children}</Table.Td>
    </Table.Tr>
  );
}

/** The gateway's own no to what was sent. */
export function Refused({ failure }: { failure: Failure }) {
  return (
    <Refusals
      title="The gateway refused it"
      refusals={[
        {
          place: failure.param ?? "the upload",
          found: failure.message,
          allowed: allowedOf(failure.code),
          fix: fixOf(failure.code),
        },
      ]}
    />
  );
}
