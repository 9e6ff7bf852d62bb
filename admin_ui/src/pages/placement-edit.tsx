import { Button, Group, Modal, Select, Stack, Switch, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, heard, type Schemas, tagged } from "../api/client";
import { Confirm } from "../parts/confirm";
import { ConflictNotice, type Saved, useEdit } from "../parts/edits";
import { NumberField } from "../parts/number-field";
import { Failed, Read } from "../parts/states";

type Placement = Schemas["PlacementOut"];
type Body = Schemas["PlacementBody"];

interface Fields extends Record<string, unknown> {
  replicas: number;
  pinned: boolean;
  tier: Body["tier"];
  version: number | null;
}

/** Of one that is placed nowhere: what a placement begins with. */
function fieldsOf(found: Record<string, unknown>): Fields {
  const placed = Number(found.replicas) > 0;
  return {
    replicas: placed ? Number(found.replicas) : 1,
    pinned: placed ? found.pinned === true : true,
    tier: found.tier as Body["tier"],
    version: (found.version as number | null) ?? null,
  };
}

interface Props {
  tenant: string;
  adapter: string;
  onClose: () => void;
}

export function PlaceAdapter({ tenant, adapter, onClose }: Props) {
  const [leaving, setLeaving] = useState<Placement | null>(null);
  const read = useQuery({
    queryKey: ["tenant", tenant, "adapter", adapter, "placement", "edit"],
    queryFn: () => tagged(ask(tenant, adapter)),
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
    meta: { kinds: [] }, // a form is seeded once
  });
  if (leaving !== null) {
    return <Leave tenant={tenant} found={leaving} onClose={onClose} />;
  }
  return (
    <Modal opened onClose={onClose} title={`Place ${adapter}`}>
      <Read of={read} what="the placement">
        {({ data, etag }) => (
          <Form
            tenant={tenant}
            found={data}
            saved={{ values: fieldsOf({ ...data }), etag }}
            onClose={onClose}
            onLeave={() => setLeaving(data)}
          />
        )}
      </Read>
    </Modal>
  );
}

const ask = (tenant: string, name: string) =>
  api.GET("/api/v1/tenants/{tenant}/adapters/{name}/placement", { params: { path: { tenant, name } } });

function usePlaced(tenant: string, adapter: string) {
  const client = useQueryClient();
  return async () => {
    await client.invalidateQueries({ queryKey: ["placement"] });
    await client.invalidateQueries({ queryKey: ["tenant", tenant, "adapter", adapter, "placement"] });
  };
}

interface FormProps {
  tenant: string;
  found: Placement;
  saved: Saved<Fields>;
  onClose: () => void;
  onLeave: () => void;
}

function Form({ tenant, found, saved, onClose, onLeave }: FormProps) {
  const name = found.adapter;
  const placed = usePlaced(tenant, name);
  const edit = useEdit(
    saved,
    async (patch, etag) => {
      // A placement is put whole: what somebody else changed meanwhile stays as it is now.
      const base = etag === saved.etag ? saved.values : fieldsOf({ ...(await heard(ask(tenant, name))) });
      const params = { path: { tenant, name }, header: etag === null ? {} : { "if-match": etag } };
      const answer = await tagged(
        api.PUT("/api/v1/tenants/{tenant}/adapters/{name}/placement", {
          params,
          body: { ...base, ...patch },
        }),
      );
      await placed();
      onClose();
      return { values: fieldsOf({ ...answer.data }), etag: answer.etag };
    },
    fieldsOf,
  );
  const is = found.replicas > 0;
  const mayPlace = found.can.includes("place");
  return (
    <Stack>
      <Text size="sm">
        It is on {found.held.device} replicas in a slot, and on {found.held.host} in memory.
      </Text>
      <ConflictNotice edit={edit} />
      <PlacementFields edit={edit} disabled={!mayPlace} />
      {edit.failure !== null && <Failed error={edit.failure} />}
      <Group justify="space-between">
        {found.can.includes("unplace") ? (
          <Button variant="default" onClick={onLeave}>
            Leave to traffic…
          </Button>
        ) : (
          <span />
        )}
        {mayPlace && (
          <Button
            onClick={() => void edit.save()}
            loading={edit.busy}
            disabled={is && edit.dirty.length === 0}
          >
            {is ? "Save" : "Place"}
          </Button>
        )}
      </Group>
    </Stack>
  );
}

function PlacementFields({
  edit,
  disabled,
}: {
  edit: ReturnType<typeof useEdit<Fields>>;
  disabled: boolean;
}) {
  const { values, set } = edit;
  const param = edit.failure?.param;
  return (
    <>
      <NumberField
        label="Replicas that hold it, at least"
        min={1}
        max={256}
        allowDecimal={false}
        disabled={disabled}
        error={param === "replicas" ? edit.failure?.message : null}
        value={values.replicas}
        onChange={(value) => value !== null && set("replicas", value)}
        data-autofocus
      />
      <Select
        label="Where"
        data={[
          { value: "host", label: "in memory" },
          { value: "device", label: "in a slot" },
        ]}
        allowDeselect={false}
        disabled={disabled}
        value={values.tier ?? "host"}
        onChange={(tier) => set("tier", tier as Fields["tier"])}
      />
      <Switch
        label="Pinned: it stays while others come and go"
        description="Otherwise it is brought back when it was pushed out, at most once a minute"
        disabled={disabled}
        checked={values.pinned}
        onChange={(event) => set("pinned", event.currentTarget.checked)}
      />
      <NumberField
        label="Version"
        placeholder="Whichever live is"
        min={1}
        allowDecimal={false}
        disabled={disabled}
        error={param === "version" ? edit.failure?.message : null}
        value={values.version}
        onChange={(value) => set("version", value)}
      />
    </>
  );
}

interface LeaveProps {
  tenant: string;
  found: Placement;
  onClose: () => void;
}

function Leave({ tenant, found, onClose }: LeaveProps) {
  const placed = usePlaced(tenant, found.adapter);
  const params = { path: { tenant, name: found.adapter } };
  return (
    <Confirm
      title={`Leave ${found.adapter} to traffic`}
      effect={`Nothing keeps it on ${found.replicas} replicas any more; within a minute others may push it out. It can be placed again.`}
      action="Leave to traffic"
      onConfirm={async () => {
        await heard(api.DELETE("/api/v1/tenants/{tenant}/adapters/{name}/placement", { params }));
        await placed();
      }}
      onClose={onClose}
    />
  );
}
