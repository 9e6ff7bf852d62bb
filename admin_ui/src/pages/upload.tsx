import {
  Alert,
  Anchor,
  Button,
  Card,
  Group,
  Modal,
  Select,
  SimpleGrid,
  Stack,
  Text,
  TextInput,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useBlocker, useParams, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useState } from "react";
import { api, heard } from "../api/client";
import { failureOf } from "../api/failure";
import { useUnsaved } from "../parts/edits";
import { useOnce } from "../parts/once";
import { Page } from "../parts/page";
import { AcceptanceEditor, acceptanceFile, NO_ACCEPTANCE } from "../uploading/acceptance";
import { ACCEPTANCE, type Checked, type Chosen, check } from "../uploading/check";
import { isRunning, useUploading } from "../uploading/course";
import { CourseView } from "../uploading/course-view";
import { ChosenFiles, FilesField } from "../uploading/files-field";
import { Refusals } from "../uploading/refusals";
import type { Begun, Named } from "../uploading/sender";
import { percentOf, Unfinished } from "../uploading/unfinished";
import { useTenantOf } from "./tenant-data";

const NAME = /^[a-z0-9][a-z0-9._-]{0,62}$/;
const UPLOADS_SHOWN = 50; // more than a tenant may have open
const NO_FILES: Named[] = [];
const NOTHING_BEGUN: Begun[] = [];

export function UploadPage() {
  const { tenant } = useParams({ from: "/inside/tenants/$tenant/upload" });
  const { name: given } = useSearch({ from: "/inside/tenants/$tenant/upload" });
  const owner = useTenantOf(tenant).data;
  const may = owner?.can.includes("upload_adapter");
  const to = owner === undefined ? "" : ` to ${owner.name}`;
  const root = `/api/v1/tenants/${tenant}`;
  const back = given === undefined ? "" : `/${given}`;
  return (
    <>
      <Anchor component={Link} to={`/tenants/${tenant}/adapters${back}`} size="sm">
        {given ?? "All adapters"}
      </Anchor>
      <Page
        title={given === undefined ? `Upload an adapter${to}` : `Upload a version of ${given}${to}`}
        calls={[
          { method: "GET", path: `${root}/uploads` },
          { method: "POST", path: `${root}/uploads` },
          { method: "POST", path: `${root}/adapters/${given ?? "NAME"}/versions`, body: { uploads: ["…"] } },
        ]}
      >
        {may === false ? (
          <Alert color="blue" title="You may not upload adapters to this tenant">
            Whoever administers it can give you a role that may.
          </Alert>
        ) : (
          <UploadForm key={given} tenant={tenant} given={given} />
        )}
      </Page>
    </>
  );
}

/** What was chosen, judged, with what the gateway has of it already. */
interface Ready {
  checked: Checked;
  files: Named[];
}

function UploadForm({ tenant, given }: { tenant: string; given: string | undefined }) {
  const [ready, setReady] = useState<Ready | null>(null);
  const [looking, setLooking] = useState(false);
  const [typed, setTyped] = useState<string | null>(given ?? null);
  const [alias, setAlias] = useState("live");
  const [other, setOther] = useState("");
  const [acceptance, setAcceptance] = useState(NO_ACCEPTANCE);
  const [problem, setProblem] = useState<Problem | null>(null);
  const uploading = useUploading(tenant);
  const once = useOnce();
  const uploads = useUploads(tenant);
  const running = isRunning(uploading.course);
  useUnsaved(
    !running &&
      uploading.course.step !== "made" &&
      (typed !== (given ?? null) || acceptance !== NO_ACCEPTANCE),
    true,
  );
  const name = typed ?? suggested(ready?.checked.name ?? "");
  const begun = useBegun(tenant, ready?.files ?? NO_FILES, uploads.data?.data ?? NOTHING_BEGUN);

  const choose = async (chosen: Chosen[]) => {
    setLooking(true);
    setProblem(null);
    uploading.reset();
    try {
      const { mostBytesOf, named } = await import("../uploading/sender");
      const checked = await check(chosen, await mostBytesOf(tenant).catch(() => null));
      setReady({ checked, files: await Promise.all(checked.files.map(named)) });
    } catch (error) {
      setReady(null); // as of a file that was moved or changed since it was chosen
      setProblem({ of: "files", why: `The files can't be read: ${failureOf(error).message}` });
    } finally {
      setLooking(false);
    }
  };

  const submit = async () => {
    const why = problemOf(ready, name, alias === "other" ? other : alias);
    setProblem(why);
    if (why !== null || ready === null) {
      return;
    }
    const { named } = await import("../uploading/sender");
    const prompts = takesPrompts(ready.checked) ? acceptanceFile(acceptance) : null;
    const files = prompts === null ? ready.files : [...ready.files, await named(prompts)];
    await uploading.begin({
      name,
      alias: alias === "other" ? other : alias,
      files,
      begun: uploads.data?.data ?? NOTHING_BEGUN,
    });
  };

  const again = () => {
    uploading.reset();
    setReady(null);
    setTyped(given ?? null);
    setAcceptance(NO_ACCEPTANCE);
  };

  const onSubmit = (event: FormEvent) => {
    event.preventDefault();
    void once(submit);
  };

  return (
    <form onSubmit={onSubmit} noValidate>
      <Stack maw={900}>
        <FilesField onChoose={(chosen) => void choose(chosen)} disabled={running || looking} />
        {problem?.of === "files" && <Alert color="red" role="alert" title={problem.why} />}
        {ready !== null && ready.checked.refusals.length > 0 && (
          <Refusals
            title="Nothing was sent: this can't become an adapter"
            refusals={ready.checked.refusals}
          />
        )}
        {ready !== null && ready.checked.refusals.length === 0 && <ChosenFiles checked={ready.checked} />}
        <Card withBorder>
          <SimpleGrid cols={{ base: 1, sm: 2 }}>
            <TextInput
              label="Name"
              description="The model that requests will name: a-z, 0-9, . _ -"
              value={name}
              disabled={running}
              readOnly={given !== undefined}
              error={problem?.of === "name" ? problem.why : null}
              onChange={(event) => setTyped(event.currentTarget.value)}
              autoComplete="off"
              spellCheck={false}
            />
            <AliasField
              alias={alias}
              other={other}
              setAlias={setAlias}
              setOther={setOther}
              error={problem?.of === "alias" ? problem.why : null}
              disabled={running}
            />
          </SimpleGrid>
        </Card>
        {ready === null || takesPrompts(ready.checked) ? (
          <AcceptanceEditor value={acceptance} onChange={setAcceptance} disabled={running} />
        ) : (
          <Text size="sm" c="dimmed">
            {ready.checked.isZip
              ? `A zip brings its own ${ACCEPTANCE}. To write prompts here, choose the folder.`
              : `The prompts of the folder's ${ACCEPTANCE} are asked.`}
          </Text>
        )}
        <CourseView
          tenant={tenant}
          course={uploading.course}
          onPause={() => void uploading.pause()}
          onAnother={again}
        />
        {uploading.course.step !== "made" && (
          <Group>
            <Button type="submit" disabled={running} loading={looking}>
              {begun === null ? "Upload" : `Resume ${percentOf(begun)}`}
            </Button>
          </Group>
        )}
        {!running && <Unfinished tenant={tenant} rows={uploads} />}
      </Stack>
      <StayOrLeave running={running} />
    </form>
  );
}

function useUploads(tenant: string) {
  return useQuery({
    queryKey: ["tenant", tenant, "uploads"],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/uploads", {
          params: { path: { tenant }, query: { limit: UPLOADS_SHOWN } },
        }),
      ),
  });
}

/** How much of the chosen files is at the gateway already; null: nothing. */
function useBegun(
  tenant: string,
  files: Named[],
  uploads: Begun[],
): { received: number; bytes: number } | null {
  const [begun, setBegun] = useState<{ received: number; bytes: number } | null>(null);
  useEffect(() => {
    let current = true;
    const look = async () => {
      const { begunOf } = await import("../uploading/sender");
      const found = await Promise.all(files.map((file) => begunOf(tenant, file, uploads)));
      const received = found.reduce((sum, each) => sum + (each?.received ?? 0), 0);
      const bytes = files.reduce((sum, { file }) => sum + file.size, 0);
      if (current) {
        setBegun(received > 0 ? { received, bytes } : null);
      }
    };
    void look();
    return () => {
      current = false;
    };
  }, [tenant, files, uploads]);
  return begun;
}

function takesPrompts(checked: Checked): boolean {
  return !checked.isZip && !checked.files.some((file) => file.name === ACCEPTANCE);
}

/** A folder's name, made into one that adapters may have. */
function suggested(folder: string): string {
  return folder
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, "-")
    .replace(/^[^a-z0-9]+/, "")
    .slice(0, 63);
}

interface Problem {
  of: "files" | "name" | "alias";
  why: string;
}

function problemOf(ready: Ready | null, name: string, alias: string): Problem | null {
  if (ready === null || ready.checked.files.length === 0) {
    return { of: "files", why: "Choose the adapter's files first." };
  }
  if (!NAME.test(name)) {
    return { of: "name", why: "1 to 63 of a-z, 0-9, . _ and -, beginning with a letter or a digit." };
  }
  return alias === "none" || (NAME.test(alias) && !/^\d+$/.test(alias))
    ? null
    : { of: "alias", why: "The alias needs a name that is no number." };
}

interface AliasProps {
  alias: string;
  other: string;
  setAlias: (alias: string) => void;
  setOther: (other: string) => void;
  error: string | null;
  disabled: boolean;
}

function AliasField({ alias, other, setAlias, setOther, error, disabled }: AliasProps) {
  return (
    <Stack gap="xs">
      <Select
        label="Once it is ready"
        description="Which requests the new version answers"
        allowDeselect={false}
        disabled={disabled}
        data={[
          { value: "live", label: "it answers under its name (live points to it)" },
          { value: "other", label: "it answers under another alias" },
          { value: "none", label: "no alias moves" },
        ]}
        value={alias}
        onChange={(value) => setAlias(value ?? "live")}
      />
      {alias === "other" && (
        <TextInput
          label="Alias"
          value={other}
          error={error}
          disabled={disabled}
          onChange={(event) => setOther(event.currentTarget.value)}
        />
      )}
    </Stack>
  );
}

/** Nobody leaves a running upload without knowing it. */
function StayOrLeave({ running }: { running: boolean }) {
  const blocker = useBlocker({
    shouldBlockFn: () => running,
    enableBeforeUnload: false,
    withResolver: true,
  });
  return (
    <Modal
      opened={blocker.status === "blocked"}
      onClose={() => blocker.reset?.()}
      title="An upload is running"
    >
      <Stack>
        <Text size="sm">
          It stops when you leave. What is there already stays for a day: choose the same files again, and it
          goes on.
        </Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={() => blocker.reset?.()}>
            Stay
          </Button>
          <Button color="red.9" onClick={() => blocker.proceed?.()}>
            Leave
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
