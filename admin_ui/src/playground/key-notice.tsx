import { Alert, Anchor, Button, Group, PasswordInput, Stack, Text } from "@mantine/core";
import { type FormEvent, useRef, useState } from "react";
import { api, heard } from "../api/client";
import { failureOf } from "../api/failure";
import type { Tenant } from "../pages/tenant-data";
import { Clock, Mono } from "../parts/figures";
import { type KeyInHand, publicPart } from "./key";

/** Which key asks; the one place where another can be given. */
export function KeyNotice({ tenant, hand }: { tenant: Tenant; hand: KeyInHand }) {
  const makes = tenant.can.includes("create_key");
  const [giving, setGiving] = useState(false);
  const { shown } = hand;
  if (shown !== null) {
    return (
      <Group gap="xs">
        <Text size="sm">
          Asks with the key <Mono>{`mt_${shown.id}_…`}</Mono>
          {shown.endsAt === null ? (
            ", which you gave"
          ) : (
            <>
              , made for this page until <Clock at={shown.endsAt} />
            </>
          )}
          .
        </Text>
        <Anchor component="button" type="button" size="sm" onClick={hand.drop}>
          {shown.endsAt === null ? "Forget it" : "Revoke it now"}
        </Anchor>
      </Group>
    );
  }
  return (
    <Stack gap="xs">
      {makes ? (
        <Text size="sm">
          Your first message makes a key for inference only. It is revoked when you leave this page, and ends
          within the hour; what it asks is billed to {tenant.name}.{" "}
          {!giving && (
            <Anchor component="button" type="button" size="sm" onClick={() => setGiving(true)}>
              Use a key of your own…
            </Anchor>
          )}
        </Text>
      ) : (
        <Alert color="blue" title="An answer takes an API key">
          You may not make one in {tenant.name}. Give one that you have, or ask an administrator of the
          tenant.
        </Alert>
      )}
      {(giving || !makes) && <GiveKey tenant={tenant} hand={hand} />}
    </Stack>
  );
}

/** The field is the browser's own: what is typed is in no state and no attribute, and gone once it is taken. */
function GiveKey({ tenant, hand }: { tenant: Tenant; hand: KeyInHand }) {
  const field = useRef<HTMLInputElement>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const secret = field.current?.value.trim() ?? "";
    const id = publicPart(secret);
    if (id === null) {
      setProblem("That is no API key: one begins with mt_.");
      return;
    }
    const known = await isOf(tenant, id);
    if (known !== null) {
      setProblem(known);
      return;
    }
    if (field.current !== null) {
      field.current.value = "";
    }
    hand.paste(secret);
  };
  return (
    <form onSubmit={(event) => void submit(event)}>
      <Group align="start" gap="xs">
        <PasswordInput
          ref={field}
          label="API key"
          description="It stays in this page's memory"
          autoComplete="off"
          placeholder="mt_…"
          error={problem}
          w={{ base: "100%", xs: 320 }}
        />
        <Button type="submit" variant="default" mt={{ base: 0, xs: 44 }}>
          Use it
        </Button>
      </Group>
    </form>
  );
}

/** Why the key is not to be used here; null when it is the tenant's, or who looks may not know. */
async function isOf(tenant: Tenant, id: string): Promise<string | null> {
  if (!tenant.can.includes("list_keys")) {
    return null;
  }
  const params = { path: { tenant: tenant.id }, query: { id_prefix: id, limit: 1 } };
  try {
    const found = await heard(api.GET("/api/v1/tenants/{tenant}/keys", { params }));
    return found.data.length > 0
      ? null
      : `${tenant.name} has no such key that you may see. Another tenant's would be billed there.`;
  } catch (error) {
    return failureOf(error).message;
  }
}
