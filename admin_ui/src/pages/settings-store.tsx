import {
  Alert,
  Anchor,
  Badge,
  Button,
  Card,
  Group,
  Modal,
  Select,
  Stack,
  Switch,
  Table,
  Text,
  TextInput,
  Title,
} from "@mantine/core";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard, type Schemas } from "../api/client";
import { Count, Moment, Mono } from "../parts/figures";
import { useOnce } from "../parts/once";
import { Empty, Failed, Read } from "../parts/states";
import { type Column, DataTable } from "../parts/table";
import { useSession } from "../session/hooks";
import { CheckPanel, CheckState } from "./settings-store-check";
import { Row } from "./tenant-overview";

type Check = Schemas["CheckOut"];
type Depth = NonNullable<Schemas["CheckIn"]["depth"]>;
const LOOK_MS = 5_000; // while the page is seen

export function StoreSettings() {
  const search = useSearch({ from: "/inside/settings/store" });
  const navigate = useNavigate({ from: "/settings/store" });
  const query = { limit: 25, cursor: search.cursor ?? null };
  const rows = useQuery({
    queryKey: ["store", "checks", query],
    queryFn: () => heard(api.GET("/api/v1/store/fsck", { params: { query } })),
    placeholderData: keepPreviousData,
    refetchInterval: LOOK_MS,
  });
  const show = (check: string | undefined) =>
    void navigate({ search: (before) => ({ ...before, check }), resetScroll: false });
  const columns: Column<Check>[] = [
    {
      title: "Asked",
      cell: (check) => (
        <Anchor component="button" type="button" onClick={() => show(check.id)}>
          <Moment at={check.asked_at} />
        </Anchor>
      ),
    },
    { title: "State", cell: (check) => <CheckState check={check} /> },
    { title: "Depth", cell: (check) => <Text size="sm">{check.depth}</Text> },
    { title: "Repairs", cell: (check) => <Text size="sm">{check.repair ? "yes" : "no"}</Text> },
    { title: "Ended", cell: (check) => <Moment at={check.ended_at} absent="not yet" /> },
    { title: "By", cell: (check) => <Mono>{check.asked_by}</Mono> },
  ];
  return (
    <Stack>
      <State />
      <Title order={2} size="h4">
        Checks of the store against the catalog
      </Title>
      <DataTable
        caption="Checks, newest first"
        columns={columns}
        rows={rows}
        rowKey={(check) => check.id}
        cursor={search.cursor}
        empty={<Empty title="The store was never checked" command="motet adapters fsck" />}
      />
      {search.check !== undefined && <CheckPanel id={search.check} onClose={() => show(undefined)} />}
    </Stack>
  );
}

function State() {
  const session = useSession();
  const [asking, setAsking] = useState(false);
  const read = useQuery({
    queryKey: ["store"],
    queryFn: () => heard(api.GET("/api/v1/store")),
    refetchInterval: LOOK_MS * 6,
  });
  return (
    <Card withBorder maw={720}>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h4">
          Object store
        </Title>
        {session.can.includes("check_store") && <Button onClick={() => setAsking(true)}>Check…</Button>}
      </Group>
      <Read of={read} what="the store">
        {(found) => (
          <>
            {!found.reachable && (
              <Alert color="red" role="alert" title="It does not answer" mb="sm">
                <Mono>{found.code ?? ""}</Mono> {found.message}
              </Alert>
            )}
            <Table variant="vertical" layout="auto">
              <Table.Tbody>
                <Row name="State">
                  <Badge color={found.reachable ? "teal" : "red"}>
                    {found.reachable ? "answers" : "away"}
                  </Badge>
                </Row>
                <Row name={found.kind === "s3" ? "Bucket" : "Folder"}>
                  <Mono>{found.place}</Mono>
                </Row>
                <Row name="Versions whose bytes are lost">
                  <Count value={found.versions_lost} />
                </Row>
                <Row name="Purges under way">
                  <Count value={found.purges_under_way} />
                </Row>
                <Row name="Replicas that have yet to purge">
                  {found.replicas_owing.length === 0 ? "none" : found.replicas_owing.join(", ")}
                </Row>
              </Table.Tbody>
            </Table>
          </>
        )}
      </Read>
      {asking && <AskForCheck onClose={() => setAsking(false)} />}
    </Card>
  );
}

const MEND = "mend"; // nobody brings back what is removed
const DEPTHS = [
  { value: "listed", label: "listed: what is there, and its length" },
  { value: "sampled", label: "sampled: also reads 100 artefacts" },
  { value: "full", label: "full: reads every artefact" },
];

function AskForCheck({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate({ from: "/settings/store" });
  const once = useOnce();
  const [depth, setDepth] = useState<Depth>("sampled");
  const [repair, setRepair] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [typed, setTyped] = useState("");
  const [missed, setMissed] = useState(false);
  const send = async () => {
    if (repair && typed !== MEND) {
      setMissed(true);
      return;
    }
    setBusy(true);
    setError(null);
    try {
      const asked = await heard(api.POST("/api/v1/store/fsck", { body: { repair, depth } }));
      await client.invalidateQueries({ queryKey: ["store"] });
      onClose();
      await navigate({ search: { check: asked.id } });
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(send);
  };
  return (
    <Modal opened onClose={onClose} title="Check the store">
      <form onSubmit={submit}>
        <Stack>
          <Select
            label="Depth"
            data={DEPTHS}
            allowDeselect={false}
            value={depth}
            onChange={(chosen) => chosen !== null && setDepth(chosen as Depth)}
          />
          <Switch
            label="Mend what can be mended"
            description="Removes orphans and unfinished puts for good; versions whose bytes are gone stop answering"
            checked={repair}
            onChange={(event) => setRepair(event.currentTarget.checked)}
          />
          {repair && (
            <TextInput
              label={`Type ${MEND} to go on`}
              value={typed}
              error={missed && typed !== MEND ? "That is not the word." : null}
              onChange={(event) => setTyped(event.currentTarget.value)}
              autoComplete="off"
              spellCheck={false}
            />
          )}
          {error !== null && <Failed error={error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" color={repair ? "red.9" : undefined} loading={busy}>
              {repair ? "Check and mend" : "Check"}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
