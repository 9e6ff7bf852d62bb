import { ActionIcon, Code, Group, Popover, Stack, Text, Title, Tooltip } from "@mantine/core";
import { type ReactNode, useEffect } from "react";
import { prefix } from "../place";
import { CopyButton } from "./copy";
import { Icon } from "./icons";

export interface ApiCall {
  method: string;
  path: string;
  body?: unknown;
}

interface Props {
  title: string;
  /** Which of its tabs is open: for the window's title, and for who hears it. */
  tab?: string | undefined;
  /** How this page's data is got without it. */
  calls: ApiCall[];
  aside?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

export function Page({ title, tab, calls, aside, actions, children }: Props) {
  useEffect(() => {
    document.title = [tab, title, "Motet"].filter((part) => part !== undefined).join(" · ");
  }, [title, tab]);
  return (
    <Stack gap="md">
      <Group justify="space-between" align="center" gap="sm">
        <Group gap="sm">
          <Title order={1} size="h2" tabIndex={-1} className="page-title">
            {title}
          </Title>
          {aside}
        </Group>
        <Group gap="xs">
          {actions}
          <ShowCalls calls={calls} />
        </Group>
      </Group>
      {children}
    </Stack>
  );
}

function ShowCalls({ calls }: { calls: ApiCall[] }) {
  const text = calls.map(curl).join("\n\n");
  return (
    <Popover width="min(36rem, 92vw)" position="bottom-end" withArrow trapFocus>
      <Popover.Target>
        <Tooltip label="Show the API call">
          <ActionIcon variant="default" size="lg" aria-label="Show the API call">
            <Icon name="code" />
          </ActionIcon>
        </Tooltip>
      </Popover.Target>
      <Popover.Dropdown>
        <Stack gap="xs">
          <Text size="sm">All that this page does, a token can do, too.</Text>
          <Code block className="command" tabIndex={0}>
            {text}
          </Code>
          <CopyButton text={text} label="Copy" />
        </Stack>
      </Popover.Dropdown>
    </Popover>
  );
}

function curl({ method, path, body }: ApiCall): string {
  const url = `${window.location.origin}${prefix}${path}`;
  const verb = method === "GET" ? "" : `-X ${method} `;
  const data =
    body === undefined
      ? ""
      : ` \\\n  -H 'content-type: application/json' -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
  return `curl ${verb}'${url}' \\\n  -H "authorization: Bearer $MOTET_ADMIN_TOKEN"${data}`;
}
