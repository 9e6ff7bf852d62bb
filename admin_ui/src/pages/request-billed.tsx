import { Button, Card, Code, Group, Stack, Table, Text, Title } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { api, heard, type Schemas } from "../api/client";
import { of } from "../live/fresh";
import { Count } from "../parts/figures";
import { Failed, Read } from "../parts/states";
import { isSignedBy } from "./receipt-signature";
import type { Story } from "./request";
import { useTenant } from "./tenant-data";
import { Row } from "./tenant-overview";

type Receipt = Schemas["ReceiptOut"];

const AGAIN_MS = 2_000;

/** What the ledger says of it, and the receipt that says the same under a signature. */
export function Billed({ story, tenant }: { story: Story; tenant: string }) {
  const id = story.request.id;
  const reached = story.billed || story.attempts > 0; // else nothing is in the ledger
  const read = useQuery({
    queryKey: ["tenant", tenant, "receipt", id],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/usage/{request_id}/receipt", {
          params: { path: { tenant, request_id: id } },
        }),
      ),
    enabled: reached,
    meta: of(), // it asks by itself until it is there, and then never changes
    refetchInterval: (query) => (query.state.data?.status === "pending" ? AGAIN_MS : false),
  });
  return (
    <Card withBorder>
      <Title order={3} size="h5" mb="sm">
        What it was billed
      </Title>
      {reached ? (
        <Read of={read} what="the receipt">
          {(receipt) =>
            receipt.status === "pending" ? (
              <Text size="sm" role="status">
                Not known yet: its row is on its way to the ledger.
              </Text>
            ) : (
              <Final receipt={receipt} tenant={tenant} />
            )
          }
        </Read>
      ) : (
        <Text size="sm">
          {story.request.outcome === "replayed"
            ? "Nothing: it got the answer of its first try, which was billed."
            : "Nothing: it never came to a replica."}
        </Text>
      )}
    </Card>
  );
}

function Final({ receipt, tenant }: { receipt: Receipt; tenant: string }) {
  const { billed } = receipt;
  return (
    <Stack gap="sm">
      {billed !== null && (
        <Table variant="vertical" layout="auto">
          <Table.Tbody>
            <Row name="Input">
              <Count value={billed.input_tokens} unit="tokens" />, of them{" "}
              <Count value={billed.cached_tokens} unit="cached" />
            </Row>
            <Row name="Output">
              <Count value={billed.output_tokens} unit="tokens" />
            </Row>
            <Row name="Amount">
              {billed.amount === null ? (
                "unknown: no price was in force"
              ) : (
                <span className="figures">
                  {billed.amount} {billed.currency}
                </span>
              )}
            </Row>
            <Row name="Outcome">{billed.outcome}</Row>
          </Table.Tbody>
        </Table>
      )}
      <Code block className="command" tabIndex={0} aria-label="Receipt">
        {receipt.receipt ?? ""}
      </Code>
      <Signature receipt={receipt.receipt ?? ""} tenant={tenant} />
    </Stack>
  );
}

/** The keys are secrets: they are asked for when somebody wants to know, and kept nowhere. */
function Signature({ receipt, tenant }: { receipt: string; tenant: string }) {
  const found = useTenant();
  const check = useMutation({
    mutationFn: async () => {
      const keys = await heard(
        api.GET("/api/v1/tenants/{tenant}/usage/receipt-keys", { params: { path: { tenant } } }),
      );
      return isSignedBy(receipt, keys.data);
    },
  });
  if (!found.data?.can.includes("read_billing") || !window.isSecureContext) {
    return (
      <Text size="sm" c="dimmed">
        Its signature is checked by <code className="mono">motet usage verify</code>.
      </Text>
    );
  }
  return (
    <Group gap="sm" aria-live="polite">
      <Button size="xs" variant="default" loading={check.isPending} onClick={() => check.mutate()}>
        Verify the signature
      </Button>
      {check.data === true && <Text size="sm">Verified: it is signed with a key of this tenant.</Text>}
      {check.data === false && (
        <Text size="sm" c="red">
          Not verified: no key of this tenant gives this signature.
        </Text>
      )}
      {check.error !== null && <Failed error={check.error} />}
    </Group>
  );
}
