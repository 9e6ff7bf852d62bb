import { Alert, Center, Paper, Stack, Text, Title } from "@mantine/core";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect } from "react";
import { tellOtherTabs } from "../session/door";
import { LogInForm } from "../session/log-in-form";

const REASONS: Record<string, string> = {
  expired: "That log-in took too long, or was begun in another browser. Begin again.",
  denied: "The provider did not let you in.",
  untrusted: "What the provider sent could not be trusted. Ask your administrator to look at its settings.",
  no_email: "The provider did not confirm an email address of yours.",
  email_taken: "There is an account with this email already, which this provider may not open.",
  disabled: "This account is disabled.",
  no_role: "You are logged in at the provider, but nobody gave you a role here. Ask your administrator.",
  oidc_unavailable: "The provider can't be reached. Try again.",
  rate_limit_exceeded: "Too many attempts. Wait a few minutes.",
};

export function LogInPage() {
  const navigate = useNavigate();
  const { error, return_to: returnTo = "/" } = useSearch({ from: "/log-in" });
  useEffect(() => {
    document.title = "Log in · Motet";
  }, []);
  return (
    <Center mih="90vh" p="md" component="main">
      <Paper withBorder p="xl" w="100%" maw={400}>
        <Stack>
          <Title order={1} size="h3">
            Log in to Motet
          </Title>
          {error !== undefined && (
            <Alert color="red" role="alert">
              {REASONS[error] ?? "The log-in failed. Begin again."}
            </Alert>
          )}
          <LogInForm
            returnTo={returnTo}
            onDone={(session) =>
              void navigate({ href: session.must_change_password ? "/password" : returnTo, replace: true })
            }
          />
        </Stack>
      </Paper>
    </Center>
  );
}

/** Where a provider sends a window that was opened beside a page: it tells the page, and goes. */
export function LoggedInPage() {
  useEffect(() => {
    tellOtherTabs();
    window.close();
  }, []);
  return (
    <Center mih="90vh" component="main">
      <Text>You are logged in. You can close this window.</Text>
    </Center>
  );
}
