import { Card, Stack, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, type Schemas, tagged } from "../api/client";
import { ConflictNotice, SaveBar, type Saved, useEdit } from "../parts/edits";
import { NumberField } from "../parts/number-field";
import { Failed, Read } from "../parts/states";
import type { Tenant } from "./tenant-data";

type Rules = Schemas["RetentionOut"]["rules"];
type Days = Record<string, number | null>; // null: the default

interface Asked {
  saved: Saved<Days>;
  rules: Rules;
}

export function TenantRetention({ tenant }: { tenant: Tenant }) {
  const read = useQuery({
    queryKey: ["tenant", tenant.id, "retention", "edit"],
    queryFn: async (): Promise<Asked> => {
      const params = { path: { tenant: tenant.id } };
      const { data, etag } = await tagged(api.GET("/api/v1/tenants/{tenant}/retention", { params }));
      return { saved: { values: daysOf(data.rules), etag }, rules: data.rules };
    },
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        How long things are kept
      </Title>
      <Read of={read} what="the rules">
        {({ saved, rules }) => <RetentionForm tenant={tenant} saved={saved} rules={rules} />}
      </Read>
    </Card>
  );
}

function daysOf(rules: Rules): Days {
  return Object.fromEntries(rules.map((rule) => [rule.kind, rule.is_default ? null : rule.days]));
}

function RetentionForm({ tenant, saved, rules }: Asked & { tenant: Tenant }) {
  const may = tenant.can.includes("change_retention");
  const edit = useEdit<Days>(
    saved,
    async (patch, etag) => {
      const params = { path: { tenant: tenant.id }, header: etag === null ? {} : { "if-match": etag } };
      const answer = await tagged(
        api.PATCH("/api/v1/tenants/{tenant}/retention", { params, body: { days: patch as Days } }),
      );
      return { values: daysOf(answer.data.rules), etag: answer.etag };
    },
    (current) => current.days as Days,
  );
  return (
    <>
      <ConflictNotice
        edit={edit}
        shown={(days) => (typeof days === "number" ? `${days} days` : "as everywhere")}
      />
      <Stack gap="sm">
        {rules.map((rule) => (
          <NumberField
            key={rule.kind}
            label={rule.kind}
            description={rule.what}
            placeholder={`${rule.default_days} days, as everywhere`}
            suffix={"\u00a0days"}
            min={1}
            max={3_650}
            allowDecimal={false}
            disabled={!may}
            value={edit.values[rule.kind] ?? null}
            onChange={(value) => edit.set(rule.kind, value)}
          />
        ))}
      </Stack>
      {edit.failure !== null && <Failed error={edit.failure} />}
      {may && <SaveBar edit={edit} />}
    </>
  );
}
