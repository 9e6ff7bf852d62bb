import { Alert, Button, Group, Table } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useCallback, useEffect, useRef, useState } from "react";
import { type Failure, failureOf } from "../api/failure";
import { useOnce } from "./once";

const unsaved = new Set<symbol>();

/** Whether something is typed that was not sent: the page is then not reloaded by itself. */
export function hasUnsaved(): boolean {
  return unsaved.size > 0;
}

/** Says so to the browser, too, which asks before it leaves. */
export function useUnsaved(is: boolean): void {
  const mine = useRef(Symbol("form"));
  useEffect(() => {
    if (!is) {
      return;
    }
    const own = mine.current;
    unsaved.add(own);
    const ask = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener("beforeunload", ask);
    return () => {
      unsaved.delete(own);
      window.removeEventListener("beforeunload", ask);
    };
  }, [is]);
}

type Fields = Record<string, unknown>;

export interface Saved<Values extends Fields> {
  values: Values;
  etag: string | null;
}

interface Conflict {
  current: Fields;
  etag: string | null;
}

export interface Edit<Values extends Fields> {
  values: Values;
  dirty: (keyof Values & string)[];
  busy: boolean;
  failure: Failure | null;
  conflict: Conflict | null;
  set: <Name extends keyof Values>(name: Name, value: Values[Name]) => void;
  save: () => Promise<void>;
  reset: () => void;
  keepMine: () => Promise<void>;
  takeTheirs: () => void;
}

/** A form over one object: seeded once, so that no answer that comes later takes what was typed; sends only what
 * was changed, with the tag of what it was seeded from, and shows what somebody else saved meanwhile. */
export function useEdit<Values extends Fields>(
  saved: Saved<Values>,
  send: (patch: Partial<Values>, etag: string | null) => Promise<Saved<Values>>,
  read: (current: Fields) => Values,
): Edit<Values> {
  const [seed, setSeed] = useState(saved);
  const [values, setValues] = useState(saved.values);
  const [busy, setBusy] = useState(false);
  const once = useOnce();
  const [failure, setFailure] = useState<Failure | null>(null);
  const [conflict, setConflict] = useState<Conflict | null>(null);
  const dirty = changed(seed.values, values);
  useUnsaved(dirty.length > 0);

  const begin = useCallback((from: Saved<Values>) => {
    setSeed(from);
    setValues(from.values);
    setFailure(null);
    setConflict(null);
  }, []);

  const submit = async (names: (keyof Values & string)[], etag: string | null) => {
    setBusy(true);
    setFailure(null);
    try {
      const patch = Object.fromEntries(names.map((name) => [name, values[name]])) as Partial<Values>;
      begin(await send(patch, etag));
      notifications.show({ message: "Saved." });
    } catch (error) {
      const heard = failureOf(error);
      if (heard.status === 412 && heard.current !== undefined) {
        setConflict({ current: heard.current, etag: heard.etag });
      } else {
        setFailure(heard);
      }
    } finally {
      setBusy(false);
    }
  };

  return {
    values,
    dirty,
    busy,
    failure,
    conflict,
    set: (name, value) => setValues((before) => ({ ...before, [name]: value })),
    save: () => once(() => submit(dirty, seed.etag)),
    reset: () => begin(seed),
    keepMine: () => once(() => submit(dirty, conflict?.etag ?? null)),
    takeTheirs: () => {
      if (conflict !== null) {
        begin({ values: read(conflict.current), etag: conflict.etag });
      }
    },
  };
}

/** Both values of each field that two people changed, and the choice between them. */
export function ConflictNotice<Values extends Fields>({
  edit,
  shown = inWords,
}: {
  edit: Edit<Values>;
  shown?: (value: unknown) => string;
}) {
  const { conflict } = edit;
  if (conflict === null) {
    return null;
  }
  return (
    <Alert color="yellow" title="Somebody else changed this meanwhile" role="alert" my="md">
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Field</Table.Th>
            <Table.Th>Yours</Table.Th>
            <Table.Th>There now</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {edit.dirty.map((name) => (
            <Table.Tr key={name}>
              <Table.Td>{name}</Table.Td>
              <Table.Td>{shown(edit.values[name])}</Table.Td>
              <Table.Td>{shown(conflict.current[name])}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <Group mt="sm">
        <Button size="xs" onClick={() => void edit.keepMine()}>
          Save mine
        </Button>
        <Button size="xs" variant="default" onClick={edit.takeTheirs}>
          Take what is there
        </Button>
      </Group>
    </Alert>
  );
}

export function SaveBar<Values extends Fields>({ edit }: { edit: Edit<Values> }) {
  return (
    <Group mt="md">
      <Button onClick={() => void edit.save()} loading={edit.busy} disabled={edit.dirty.length === 0}>
        Save
      </Button>
      <Button variant="default" onClick={edit.reset} disabled={edit.dirty.length === 0}>
        Discard
      </Button>
    </Group>
  );
}

function changed<Values extends Fields>(before: Values, now: Values): (keyof Values & string)[] {
  return Object.keys(now).filter((name) => JSON.stringify(before[name]) !== JSON.stringify(now[name]));
}

function inWords(value: unknown): string {
  if (value === null || value === undefined) {
    return "no limit";
  }
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
