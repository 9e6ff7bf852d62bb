import { Card, SimpleGrid, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, tagged } from "../api/client";
import { type Saved, useEdit } from "../parts/edits";
import { LimitForm, type LimitValues, limitValues } from "../parts/limit-fields";
import { Read } from "../parts/states";
import { useAdapter, useAdapterPath } from "./adapter-data";
import { AdapterPlacement } from "./adapter-placement";

export function AdapterLimits() {
  const path = useAdapterPath();
  const adapter = useAdapter().data;
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }}>
      <Limits may={adapter?.can.includes("change_limits") ?? false} />
      {adapter?.can.includes("read_placement") && (
        <AdapterPlacement tenant={path.tenant} adapter={path.name} />
      )}
    </SimpleGrid>
  );
}

function Limits({ may }: { may: boolean }) {
  const path = useAdapterPath();
  const read = useQuery({
    queryKey: ["tenant", path.tenant, "adapter", path.name, "limits"],
    queryFn: async (): Promise<Saved<LimitValues>> => {
      const { data, etag } = await tagged(
        api.GET("/api/v1/tenants/{tenant}/adapters/{name}/limits", { params: { path } }),
      );
      return { values: limitValues({ ...data }), etag };
    },
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Limits of this adapter, in whichever version
      </Title>
      <Read of={read} what="the limits">
        {(saved) => <LimitsForm saved={saved} may={may} />}
      </Read>
    </Card>
  );
}

function LimitsForm({ saved, may }: { saved: Saved<LimitValues>; may: boolean }) {
  const path = useAdapterPath();
  const edit = useEdit(
    saved,
    async (patch, etag) => {
      const params = { path, header: etag === null ? {} : { "if-match": etag } };
      const { budget_day, budget_month, ...buckets } = patch;
      const answer = await tagged(
        api.PATCH("/api/v1/tenants/{tenant}/adapters/{name}/limits", { params, body: buckets }),
      );
      return { values: limitValues({ ...answer.data }), etag: answer.etag };
    },
    limitValues,
  );
  return <LimitForm edit={edit} may={may} budgets={false} />;
}
