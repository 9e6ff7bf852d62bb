import { Button, Card, Group, Select, Stack, Text, Title } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, heard, type Schemas, tagged } from "../api/client";
import { Confirm } from "../parts/confirm";
import { ConflictNotice, SaveBar, type Saved, useEdit } from "../parts/edits";
import { countText } from "../parts/figures";
import { NumberField } from "../parts/number-field";
import { Failed, Read } from "../parts/states";
import type { Tenant } from "./tenant-data";

interface CacheValues extends Record<string, unknown> {
  response_cache: Schemas["CacheMode"];
  response_cache_age_s: number;
}

const MODES = [
  { value: "off", label: "off" },
  { value: "greedy", label: "greedy: what temperature 0 makes exact" },
  { value: "seeded", label: "seeded: that, and what names a seed" },
];

const cacheValues = (found: Record<string, unknown>): CacheValues => ({
  response_cache: found.response_cache as CacheValues["response_cache"],
  response_cache_age_s: Number(found.response_cache_age_s),
});

export function TenantCaches({ tenant }: { tenant: Tenant }) {
  const [asking, setAsking] = useState(false);
  const read = useQuery({
    queryKey: ["tenant", tenant.id, "caches", "edit"],
    queryFn: async (): Promise<Saved<CacheValues>> => {
      const params = { path: { tenant: tenant.id } };
      const { data, etag } = await tagged(api.GET("/api/v1/tenants/{tenant}/caches", { params }));
      return { values: cacheValues({ ...data }), etag };
    },
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h4">
          Caches
        </Title>
        {tenant.can.includes("drop_caches") && (
          <Button size="xs" color="red" variant="light" onClick={() => setAsking(true)}>
            Drop…
          </Button>
        )}
      </Group>
      <Read of={read} what="the caches">
        {(saved) => <CachesForm tenant={tenant} saved={saved} />}
      </Read>
      {asking && (
        <Confirm
          title={`Drop the caches of ${tenant.name}`}
          effect="Kept answers are deleted, and no prefix that replicas hold is found again. Until they fill, answers take longer and no prompt token is billed as cached."
          typed={tenant.name}
          action="Drop"
          onConfirm={async () => {
            const params = { path: { tenant: tenant.id } };
            const dropped = await heard(api.DELETE("/api/v1/tenants/{tenant}/caches", { params }));
            notifications.show({ message: `Dropped, with ${countText(dropped.answers, "answers")}.` });
          }}
          onClose={() => setAsking(false)}
        />
      )}
    </Card>
  );
}

function CachesForm({ tenant, saved }: { tenant: Tenant; saved: Saved<CacheValues> }) {
  const may = tenant.can.includes("change_caches");
  const edit = useEdit<CacheValues>(
    saved,
    async (patch, etag) => {
      const params = { path: { tenant: tenant.id }, header: etag === null ? {} : { "if-match": etag } };
      const answer = await tagged(api.PATCH("/api/v1/tenants/{tenant}/caches", { params, body: patch }));
      return { values: cacheValues({ ...answer.data }), etag: answer.etag };
    },
    cacheValues,
  );
  return (
    <>
      <ConflictNotice edit={edit} />
      <Stack gap="sm">
        <Select
          label="Response cache"
          description="Which requests may be answered with an answer that was given before"
          data={MODES}
          allowDeselect={false}
          disabled={!may}
          value={edit.values.response_cache}
          onChange={(mode) =>
            mode !== null && edit.set("response_cache", mode as CacheValues["response_cache"])
          }
        />
        <NumberField
          label="An answer is kept for"
          suffix={"\u00a0s"}
          min={1}
          max={604_800}
          allowDecimal={false}
          thousandSeparator=" "
          disabled={!may}
          value={edit.values.response_cache_age_s}
          onChange={(value) => value !== null && edit.set("response_cache_age_s", value)}
        />
        <Text size="sm" c="dimmed">
          The prefix cache of replicas is always on, and each tenant's is its own.
        </Text>
      </Stack>
      {edit.failure !== null && <Failed error={edit.failure} />}
      {may && <SaveBar edit={edit} />}
    </>
  );
}
