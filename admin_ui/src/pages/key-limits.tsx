import { Card, Text, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { api, type Schemas, tagged } from "../api/client";
import { type Saved, useEdit } from "../parts/edits";
import { LimitForm, type LimitValues, limitValues } from "../parts/limit-fields";
import { Read } from "../parts/states";

interface Props {
  found: Schemas["KeyOut"];
}

/** What one key is held to, within its tenant's limits. */
export function KeyLimits({ found }: Props) {
  const path = { tenant: found.tenant, key_id: found.id };
  const read = useQuery({
    queryKey: ["tenant", found.tenant, "key", found.id, "limits"],
    queryFn: async (): Promise<Saved<LimitValues>> => {
      const { data, etag } = await tagged(
        api.GET("/api/v1/tenants/{tenant}/keys/{key_id}/limits", { params: { path } }),
      );
      return { values: limitValues({ ...data }), etag };
    },
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  return (
    <Card withBorder component="section" aria-label="Limits and budgets">
      <Title order={2} size="h4">
        Limits and budgets
      </Title>
      <Text size="sm" c="dimmed" mb="sm">
        Of this key alone; those of the tenant hold besides.
      </Text>
      <Read of={read} what="the limits">
        {(saved) => <LimitsForm found={found} saved={saved} />}
      </Read>
    </Card>
  );
}

function LimitsForm({ found, saved }: Props & { saved: Saved<LimitValues> }) {
  const client = useQueryClient(); // limits are in the key's own tag, too
  const may = found.can.includes("change_limits");
  const edit = useEdit(
    saved,
    async (patch, etag) => {
      const path = { tenant: found.tenant, key_id: found.id };
      const params = { path, header: etag === null ? {} : { "if-match": etag } };
      const answer = await tagged(
        api.PATCH("/api/v1/tenants/{tenant}/keys/{key_id}/limits", { params, body: patch }),
      );
      await client.invalidateQueries({ queryKey: ["tenant", found.tenant, "key", found.id], exact: true });
      return { values: limitValues({ ...answer.data }), etag: answer.etag };
    },
    limitValues,
  );
  return <LimitForm edit={edit} may={may} />;
}
