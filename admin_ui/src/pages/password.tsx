import { Alert, Button, PasswordInput, Stack, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, heard } from "../api/client";
import { useUnsaved } from "../parts/edits";
import { useOnce } from "../parts/once";
import { Page } from "../parts/page";
import { Failed } from "../parts/states";
import { queries, SESSION } from "../session/door";
import { useSession } from "../session/hooks";

const LEAST = 12;

export function PasswordPage() {
  const session = useSession();
  const navigate = useNavigate();
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  const [again, setAgain] = useState("");
  const [tried, setTried] = useState(false);
  const [busy, setBusy] = useState(false);
  const once = useOnce();
  const [error, setError] = useState<unknown>(null);

  useUnsaved(current !== "" || next !== "", true);

  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(send);
  };

  const send = async () => {
    setTried(true);
    if (next.length < LEAST || next !== again) {
      return;
    }
    setBusy(true);
    setError(null);
    try {
      const opened = await heard(api.PUT("/api/v1/session/password", { body: { current, new: next } }));
      queries.setQueryData(SESSION, opened);
      notifications.show({ message: "Your password is changed. All other sessions have ended." });
      await navigate({ to: "/" });
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };

  return (
    <Page
      title="Change password"
      calls={[{ method: "PUT", path: "/api/v1/session/password", body: { current: "…", new: "…" } }]}
    >
      <form onSubmit={submit}>
        <Stack maw={400}>
          {session.must_change_password && (
            <Alert color="blue">
              Choose a password of your own first. The one you were given opens nothing else.
            </Alert>
          )}
          <PasswordInput
            label="Current password"
            autoComplete="current-password"
            value={current}
            onChange={(event) => setCurrent(event.currentTarget.value)}
            required
            withAsterisk={false}
          />
          <PasswordInput
            label="New password"
            description={`At least ${LEAST} characters`}
            autoComplete="new-password"
            value={next}
            error={
              tried && next.length < LEAST ? `It has ${next.length} of at least ${LEAST} characters.` : null
            }
            onChange={(event) => setNext(event.currentTarget.value)}
          />
          <PasswordInput
            label="New password, again"
            autoComplete="new-password"
            value={again}
            error={tried && next !== again ? "It is not the same." : null}
            onChange={(event) => setAgain(event.currentTarget.value)}
          />
          {error !== null && <Failed error={error} />}
          <Text size="sm" c="dimmed">
            All your sessions end, in other browsers too.
          </Text>
          <Button type="submit" loading={busy}>
            Change password
          </Button>
        </Stack>
      </form>
    </Page>
  );
}
