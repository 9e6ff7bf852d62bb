import {
  ActionIcon,
  AppShell,
  Burger,
  Button,
  Group,
  Menu,
  NavLink,
  Text,
  Tooltip,
  useMantineColorScheme,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { spotlight } from "@mantine/spotlight";
import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { useEffect } from "react";
import { failureOf } from "../api/failure";
import { LiveUpdates } from "../live/live";
import { Icon } from "../parts/icons";
import { uiRoot } from "../place";
import { logOut } from "../session/door";
import { useSession, useSessionWatch } from "../session/hooks";
import { Finder } from "./finder";
import { places } from "./places";
import { Shortcuts } from "./shortcuts";
import { TenantSwitcher } from "./tenant-switcher";

export function Shell() {
  const session = useSession();
  const [open, menu] = useDisclosure(false);
  const path = useRouterState({ select: (state) => state.location.pathname });
  useSessionWatch();
  useEffect(() => {
    if (path) {
      menu.close();
    }
  }, [path, menu.close]);

  return (
    <AppShell
      header={{ height: 56 }}
      navbar={{ width: 220, breakpoint: "sm", collapsed: { mobile: !open } }}
      padding="md"
    >
      <a className="skip" href="#main">
        Skip to content
      </a>
      <AppShell.Header>
        <Group h="100%" px="md" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger opened={open} onClick={menu.toggle} hiddenFrom="sm" size="sm" aria-label="Navigation" />
            <Text fw={700} visibleFrom="xs">
              Motet
            </Text>
            {session.can.includes("list_tenants") && <TenantSwitcher />}
          </Group>
          <Group gap="xs" wrap="nowrap">
            <Tooltip label="Find (Ctrl K)">
              <ActionIcon variant="default" size="lg" aria-label="Find" onClick={spotlight.open}>
                <Icon name="search" />
              </ActionIcon>
            </Tooltip>
            <Shortcuts />
            <ColorScheme />
            <Account email={session.admin.email} />
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" aria-label="Main">
        {places(session).map((place) => (
          <NavLink
            key={place.to}
            component={Link}
            to={place.to}
            label={place.label}
            leftSection={<Icon name={place.icon} />}
            active={path.startsWith(place.to)}
          />
        ))}
      </AppShell.Navbar>
      <AppShell.Main id="main" tabIndex={-1}>
        <Outlet />
      </AppShell.Main>
      <Finder session={session} />
      <LiveUpdates />
    </AppShell>
  );
}

function ColorScheme() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const dark =
    colorScheme === "dark" ||
    (colorScheme === "auto" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  const label = dark ? "Use light colours" : "Use dark colours";
  return (
    <Tooltip label={label}>
      <ActionIcon
        variant="default"
        size="lg"
        aria-label={label}
        onClick={() => setColorScheme(dark ? "light" : "dark")}
      >
        <Icon name={dark ? "sun" : "moon"} />
      </ActionIcon>
    </Tooltip>
  );
}

function Account({ email }: { email: string }) {
  const session = useSession();
  const leave = async (everywhere: boolean) => {
    try {
      await logOut(everywhere);
      window.location.assign(`${uiRoot}/log-in`); // nothing of what was shown stays in memory
    } catch (error) {
      notifications.show({ color: "red", message: failureOf(error).message });
    }
  };
  return (
    <Menu position="bottom-end" width={240}>
      <Menu.Target>
        <Button variant="default" px="xs" aria-label={`Account ${email}`}>
          <Icon name="person" />
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>{email}</Menu.Label>
        <Menu.Item component={Link} to="/settings">
          Settings
        </Menu.Item>
        {session.can.includes("change_password") && (
          <Menu.Item component={Link} to="/password">
            Change password…
          </Menu.Item>
        )}
        <Menu.Item onClick={() => void leave(false)}>Log out</Menu.Item>
        <Menu.Item onClick={() => void leave(true)}>Log out everywhere</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
