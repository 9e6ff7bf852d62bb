import { Card, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { api, tagged } from "../api/client";
import { type Saved, useEdit } from "../parts/edits";
import { LimitForm, type LimitValues, limitValues } from "../parts/limit-fields";
import { Read } from "../parts/states";
import { useTenant, useTenantId } from "./tenant-data";

export function TenantLimits() {
  const id = useTenantId();
  const tenant = useTenant();
  const read = useQuery({
    queryKey: ["tenant", id, "limits", "edit"],
    queryFn: async (): Promise<Saved<LimitValues>> => {
      const params = { path: { tenant: id } };
      const { data, etag } = await tagged(api.GET("/api/v1/tenants/{tenant}/limits", { params }));
      return { values: limitValues({ ...data }), etag };
    },
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  return (
    <Card withBorder maw={720}>
      <Title order={2} size="h4" mb="sm">
        Limits and budgets
      </Title>
      <Read of={read} what="the limits">
        {(saved) => <LimitsForm saved={saved} may={tenant.data?.can.includes("change_limits") ?? false} />}
      </Read>
    </Card>
  );
}

function LimitsForm({ saved, may }: { saved: Saved<LimitValues>; may: boolean }) {
  const id = useTenantId();
  const client = useQueryClient();
  const edit = useEdit(
    saved,
    async (patch, etag) => {
      const params = { path: { tenant: id }, header: etag === null ? {} : { "if-match": etag } };
      const answer = await tagged(api.PATCH("/api/v1/tenants/{tenant}/limits", { params, body: patch }));
      await client.invalidateQueries({ queryKey: ["tenant", id] });
      return { values: limitValues({ ...answer.data }), etag: answer.etag };
    },
    limitValues,
  );
  return <LimitForm edit={edit} may={may} />;
}
