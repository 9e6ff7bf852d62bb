import { Button, Card, Code, Group, Stack, Table, Text, Title } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { api, heard, type Schemas } from "../api/client";
import { Failure } from "../api/failure";
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
  const read = useQuery({
    queryKey: ["tenant", tenant, "receipt", id],
    queryFn: async () => {
      try {
        const path = { tenant, request_id: id };
        return await heard(
          api.GET("/api/v1/tenants/{tenant}/usage/{request_id}/receipt", { params: { path } }),
        );
      } catch (error) {
        if (error instanceof Failure && error.status === 404) {
          return null; // it never came to a replica: nothing is in the ledger
        }
        throw error;
      }
    },
    refetchInterval: (query) => (query.state.data?.status === "pending" ? AGAIN_MS : false),
  });
  return (
    <Card withBorder>
      <Title order={3} size="h5" mb="sm">
        What it was billed
      </Title>
      <Read of={read} what="the receipt">
        {(receipt) =>
          receipt === null ? (
            <Text size="sm">Nothing: it is not in the ledger, for it never came to an answer.</Text>
          ) : receipt.status === "pending" ? (
            <Text size="sm" role="status">
              Not known yet: its row is on its way to the ledger.
            </Text>
          ) : (
            <Final receipt={receipt} story={story} tenant={tenant} />
          )
        }
      </Read>
    </Card>
  );
}

function Final({ receipt, story, tenant }: { receipt: Receipt; story: Story; tenant: string }) {
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
      {story.request.outcome === "replayed" && (
        <Text size="sm">Its first try was billed; this answer was not.</Text>
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
