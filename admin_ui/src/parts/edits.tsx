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

/** Says so to the browser, too, which asks before it leaves; not of what is lost with the page as everybody knows
 * (`quietly`), which only keeps the page from being loaded anew by itself. */
export function useUnsaved(is: boolean, quietly = false): void {
  const mine = useRef(Symbol("form"));
  useEffect(() => {
    if (!is) {
      return;
    }
    const own = mine.current;
    unsaved.add(own);
    const ask = (event: BeforeUnloadEvent) => event.preventDefault();
    if (!quietly) {
      window.addEventListener("beforeunload", ask);
    }
    return () => {
      unsaved.delete(own);
      window.removeEventListener("beforeunload", ask);
    };
  }, [is, quietly]);
}

type Fields = Record<string, unknown>;

export interface Saved<Values extends Fields> {
  values: Values;
  etag: string | null;
}

interface Conflict<Values extends Fields> {
  theirs: Values;
  etag: string | null;
}

export interface Edit<Values extends Fields> {
  values: Values;
  dirty: (keyof Values & string)[];
  busy: boolean;
  failure: Failure | null;
  conflict: Conflict<Values> | null;
  set: <Name extends keyof Values>(name: Name, value: Values[Name]) => void;
  save: () => Promise<void>;
  reset: () => void;
  keepMine: () => Promise<void>;
  takeTheirs: () => void;
}

/** A form over one object: what comes later is taken in only while nothing is typed, so that no answer takes what
 * was; sends only what was changed, with the tag of what it was seeded from, and shows what somebody else saved
 * meanwhile. */
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
  const [conflict, setConflict] = useState<Conflict<Values> | null>(null);
  const dirty = changed(seed.values, values);
  useUnsaved(dirty.length > 0);

  const begin = useCallback((from: Saved<Values>) => {
    setSeed(from);
    setValues(from.values);
    setFailure(null);
    setConflict(null);
  }, []);

  // Another tag than `saved` had is another's edit; its own are in the seed before `saved` has them.
  const latest = useRef(saved);
  const heard = useRef(saved.etag);
  const idle = dirty.length === 0 && !busy && conflict === null;
  useEffect(() => {
    if (saved.etag === heard.current) {
      return;
    }
    heard.current = saved.etag;
    latest.current = saved;
    if (idle && saved.etag !== seed.etag) {
      begin(saved);
    }
  });

  const submit = async (names: (keyof Values & string)[], etag: string | null) => {
    setBusy(true);
    setFailure(null);
    try {
      const patch = Object.fromEntries(names.map((name) => [name, values[name]])) as Partial<Values>;
      const now = await send(patch, etag);
      latest.current = now;
      setSeed(now);
      setValues((typed) => stillTyped(now.values, values, typed));
      setConflict(null);
      notifications.show({ message: "Saved." });
    } catch (error) {
      const failed = failureOf(error);
      if (failed.status === 412 && failed.current !== undefined) {
        setConflict({ theirs: read(failed.current), etag: failed.etag });
      } else {
        setFailure(failed);
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
    reset: () => begin(latest.current),
    keepMine: () => once(() => submit(dirty, conflict?.etag ?? null)),
    takeTheirs: () => {
      if (conflict !== null) {
        begin({ values: conflict.theirs, etag: conflict.etag });
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
            <Table.Th scope="col">Field</Table.Th>
            <Table.Th scope="col">Yours</Table.Th>
            <Table.Th scope="col">There now</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {edit.dirty.map((name) => (
            <Table.Tr key={name}>
              <Table.Td>{name}</Table.Td>
              <Table.Td>{shown(edit.values[name])}</Table.Td>
              <Table.Td>{shown(conflict.theirs[name])}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <Group mt="sm">
        <Button size="xs" onClick={() => void edit.keepMine()} loading={edit.busy}>
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

/** What is there now, and over it what was typed while it was on its way. */
function stillTyped<Values extends Fields>(now: Values, sent: Values, typed: Values): Values {
  const since = changed(sent, typed).map((name) => [name, typed[name]]);
  return { ...now, ...Object.fromEntries(since) };
}

function changed<Values extends Fields>(before: Values, now: Values): (keyof Values & string)[] {
  return Object.keys(now).filter((name) => JSON.stringify(before[name]) !== JSON.stringify(now[name]));
}

function inWords(value: unknown): string {
  if (value === null || value === undefined) {
    return "none";
  }
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
