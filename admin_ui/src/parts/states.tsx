import { Alert, Button, Center, Code, Group, Loader, Stack, Text, Title } from "@mantine/core";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { failureOf } from "../api/failure";
import { Clock } from "./figures";

const SPINNER_AFTER_MS = 200;
const AGAIN_MS = 10_000;

/** Nothing for a moment, then a spinner: what comes at once does not flicker. */
export function Loading({ what }: { what: string }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), SPINNER_AFTER_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <Center mih={160} role="status" aria-label={`Loading ${what}`}>
      {late && <Loader />}
    </Center>
  );
}

/** Says what would stand here, and how the first one is made. */
export function Empty({
  title,
  children,
  command,
}: {
  title: string;
  children?: ReactNode;
  command?: string;
}) {
  return (
    <Stack align="center" py="xl" gap="xs">
      <Title order={3} size="h4">
        {title}
      </Title>
      {children}
      {command !== undefined && (
        <Code block className="command" tabIndex={0}>
          {command}
        </Code>
      )}
    </Stack>
  );
}

/** What went wrong, whether waiting helps, and the id to ask about it with. */
export function Failed({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const failure = failureOf(error);
  return (
    <Alert color="red" title={failure.message} role="alert" my="md">
      <Stack gap="xs">
        <Text size="sm">
          {failure.passing
            ? "This passes by itself, or the operator of this installation has to look after it."
            : "It will not pass by itself."}
        </Text>
        {failure.requestId !== null && (
          <Text size="sm">
            Request <code className="mono">{failure.requestId}</code>
          </Text>
        )}
        {onRetry !== undefined && (
          <Group>
            <Button size="xs" variant="default" onClick={onRetry}>
              Try again
            </Button>
          </Group>
        )}
      </Stack>
    </Alert>
  );
}

/** Over what is still shown, but could not be read again. What may pass is asked for until it does. */
function Stale({ since, error, refetch }: { since: number; error: unknown; refetch: () => unknown }) {
  const { message, passing } = failureOf(error);
  const again = useRef(refetch);
  again.current = refetch;
  useEffect(() => {
    if (!passing) {
      return;
    }
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") {
        again.current();
      }
    }, AGAIN_MS);
    return () => clearInterval(timer);
  }, [passing]);
  return (
    <Alert color="yellow" role="status" mb="sm" p="xs">
      As of <Clock at={since} />: {message} {passing && "It is tried again by itself."}
    </Alert>
  );
}

/** It went well. Green on green is too faint to read, so its title is plain. */
export function Passed({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Alert color="teal" title={title} classNames={{ title: "plain" }}>
      {children}
    </Alert>
  );
}

interface Asked<Data> {
  data: Data | undefined;
  error: unknown;
  isPending: boolean;
  dataUpdatedAt: number;
  refetch: () => unknown;
}

/** The four states of everything that is read: loading, failed, stale, there. */
export function Read<Data>({
  of,
  what,
  children,
}: {
  of: Asked<Data>;
  what: string;
  children: (data: Data) => ReactNode;
}) {
  if (of.data === undefined) {
    return of.isPending && of.error === null ? (
      <Loading what={what} />
    ) : (
      <Failed error={of.error} onRetry={() => void of.refetch()} />
    );
  }
  return (
    <>
      {of.error !== null && <Stale since={of.dataUpdatedAt} error={of.error} refetch={of.refetch} />}
      {children(of.data)}
    </>
  );
}
