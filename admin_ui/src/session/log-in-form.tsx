import { Alert, Button, Divider, PasswordInput, Stack, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { failureOf } from "../api/failure";
import { useOnce } from "../parts/once";
import { Failed } from "../parts/states";
import { prefix } from "../place";
import { fetchProviders, logIn, type Session } from "./door";

interface Props {
  /** Where a provider sends the browser back to: an address in the UI. */
  returnTo: string;
  /** Of a page that must stay: the provider opens in a window of its own. */
  beside?: boolean;
  onDone: (session: Session) => void;
}

/** By a provider, where there is one, or by password. */
export function LogInForm({ returnTo, beside = false, onDone }: Props) {
  const providers = useQuery({ queryKey: ["providers"], queryFn: fetchProviders, staleTime: 300_000 });
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);

  const once = useOnce();
  const byPassword = providers.data?.password ?? true;

  const submit = (event: FormEvent) => {
    event.preventDefault();
    void once(send);
  };

  const send = async () => {
    setBusy(true);
    setProblem(null);
    try {
      onDone(await logIn(email, password));
    } catch (error) {
      setProblem(failureOf(error).message);
      document.getElementById("log-in-email")?.focus();
    } finally {
      setBusy(false);
    }
  };

  return (
    <Stack>
      {providers.data === undefined && providers.error !== null && (
        <Failed error={providers.error} onRetry={() => void providers.refetch()} />
      )}
      {(providers.data?.data ?? []).map((provider) => (
        <Button
          key={provider.id}
          component="a"
          href={`${prefix}${provider.path}?return_to=${encodeURIComponent(returnTo)}`}
          variant="default"
          {...(beside ? { target: "_blank", rel: "opener" } : {})}
        >
          Log in with {provider.name}
        </Button>
      ))}
      {(providers.data?.data.length ?? 0) > 0 && byPassword && <Divider label="or with a password" />}
      <form onSubmit={submit} hidden={!byPassword}>
        <Stack>
          {problem !== null && (
            <Alert color="red" role="alert">
              {problem}
            </Alert>
          )}
          <TextInput
            id="log-in-email"
            label="Email"
            type="email"
            autoComplete="username"
            required
            withAsterisk={false}
            value={email}
            onChange={(event) => setEmail(event.currentTarget.value)}
          />
          <PasswordInput
            label="Password"
            autoComplete="current-password"
            required
            withAsterisk={false}
            value={password}
            onChange={(event) => setPassword(event.currentTarget.value)}
          />
          <Button type="submit" loading={busy}>
            Log in
          </Button>
        </Stack>
      </form>
    </Stack>
  );
}
