import { Alert, Anchor, Button, Card, Group, Loader, Progress, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { bytesText } from "../parts/figures";
import { Failed, Passed } from "../parts/states";
import { type Course, isRunning, type Sending } from "./course";
import { fixOf } from "./fixes";
import { Refused } from "./refusals";
import { percentOf } from "./unfinished";

const LOOK_MS = 1_000;
type Version = Schemas["VersionOut"];

interface Props {
  tenant: string;
  course: Course;
  onPause: () => void;
  onAnother: () => void;
}

/** Where an upload is, told as it happens. */
export function CourseView({ tenant, course, onPause, onAnother }: Props) {
  if (course.step === "idle") {
    return null;
  }
  return (
    <Card withBorder component="section" aria-label="Upload" aria-busy={isRunning(course)}>
      <Stack>
        {course.step === "sending" && <Bar course={course} onPause={onPause} />}
        {course.step === "making" && (
          <Working what="The gateway checks the files" standing={course.standing} />
        )}
        {course.step === "made" && (
          <Made tenant={tenant} made={course.version} before={course.before} onAnother={onAnother} />
        )}
        {course.step === "failed" &&
          (course.failure.passing || course.failure.status === 423 ? (
            <Failed error={course.failure} />
          ) : (
            <Refused failure={course.failure} />
          ))}
      </Stack>
    </Card>
  );
}

function Bar({ course, onPause }: { course: Sending; onPause: () => void }) {
  const { sent, total, rate, standing } = course;
  const percent = percentOf({ received: sent, bytes: total });
  const text = `${bytesText(sent)} of ${bytesText(total)}`;
  const pace = rate === null ? "" : `${bytesText(rate)}/s${left(total - sent, rate)}`;
  return (
    <>
      <div className="off-screen" role="status">
        {`${10 * Math.floor((10 * sent) / Math.max(1, total))} percent are sent`}
      </div>
      <Group justify="space-between">
        <Title order={2} size="h4">
          Uploading, <span className="figures">{percent}</span>
        </Title>
        <Button size="xs" variant="default" onClick={onPause}>
          Pause
        </Button>
      </Group>
      <Progress value={(100 * sent) / Math.max(1, total)} aria-label={`Sent: ${text}`} />
      <Group justify="space-between" gap="xs">
        <Text size="sm" className="figures">
          {text}
        </Text>
        <Text size="sm" className="figures">
          {pace}
        </Text>
      </Group>
      {standing !== null && (
        <Alert color="yellow" p="xs">
          {standing} It goes on by itself, from where it stopped.
        </Alert>
      )}
    </>
  );
}

function left(bytes: number, rate: number): string {
  if (rate <= 0 || bytes === 0) {
    return "";
  }
  const seconds = Math.ceil(bytes / rate);
  return seconds < 90 ? `, ${seconds}\u00a0s left` : `, ${Math.ceil(seconds / 60)}\u00a0min left`;
}

function Working({ what, standing }: { what: string; standing: string | null }) {
  return (
    <Group role="status">
      <Loader size="sm" />
      <Text>{what}</Text>
      {standing !== null && (
        <Text size="sm" c="dimmed">
          {standing} It is tried again by itself.
        </Text>
      )}
    </Group>
  );
}

interface MadeProps {
  tenant: string;
  made: Version;
  before: boolean;
  onAnother: () => void;
}

/** The version, followed until it is ready or rejected. */
function Made({ tenant, made, before, onAnother }: MadeProps) {
  const path = { tenant, name: made.adapter, number: made.version };
  const read = useQuery({
    queryKey: ["tenant", tenant, "adapter", made.adapter, "version", made.version],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/adapters/{name}/versions/{number}", {
          params: { path, query: { state: "any" } }, // as its own page asks, with which it shares the answer
        }),
      ),
    initialData: made,
    initialDataUpdatedAt: 0,
    refetchInterval: ({ state }) => (state.data !== undefined && isSettled(state.data) ? false : LOOK_MS),
  });
  const version = read.data;
  const place = `/tenants/${tenant}/adapters/${version.adapter}/versions/${version.version}`;
  const model = version.aliases.includes("live") ? version.adapter : version.id;
  return (
    <>
      {before && (
        <Alert
          color="yellow"
          classNames={{ title: "plain" }}
          title={`Identical to version ${version.version}`}
        >
          This adapter has a version of the same content (same digest) already. Nothing was stored, and no
          alias was moved.
        </Alert>
      )}
      <Outcome version={version} />
      {read.error !== null && <Failed error={read.error} />}
      <Group>
        {version.state === "ready" && (
          <Button component={Link} to={`/tenants/${tenant}/playground`} search={{ model } as never} size="xs">
            Chat with it
          </Button>
        )}
        <Anchor component={Link} to={place}>
          Open {version.id} and its report
        </Anchor>
        <Button variant="default" size="xs" onClick={onAnother}>
          Upload another
        </Button>
      </Group>
    </>
  );
}

function isSettled({ state }: Version): boolean {
  return state !== "uploaded" && state !== "proving";
}

function Outcome({ version }: { version: Version }) {
  switch (version.state) {
    case "ready":
      return (
        <Passed title={`${version.id} is ready`}>
          {version.aliases.length > 0
            ? `It answers as ${version.aliases.map((alias) => (alias === "live" ? version.adapter : `${version.adapter}@${alias}`)).join(", ")}.`
            : `It answers as ${version.id}; no alias points to it.`}
        </Passed>
      );
    case "rejected":
      return (
        <Alert color="red" title={`${version.id} was rejected`} role="alert">
          <Text size="sm">{version.reason}</Text>
          <Text size="sm">{fixOf(version.reason?.split(":")[0])}</Text>
        </Alert>
      );
    default:
      return (
        <Working
          what={
            version.state === "proving"
              ? `A replica is proving ${version.id}`
              : `${version.id} is stored, and waits for a replica to prove it`
          }
          standing={null}
        />
      );
  }
}
