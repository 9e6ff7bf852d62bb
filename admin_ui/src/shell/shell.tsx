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
import { useDisclosure, useHotkeys } from "@mantine/hooks";
import { spotlight } from "@mantine/spotlight";
import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { LiveUpdates } from "../live/live";
import { Icon } from "../parts/icons";
import { useSession, useSessionWatch } from "../session/hooks";
import { LogOutEverywhere, leaveHere } from "../session/log-out";
import { Finder } from "./finder";
import { places } from "./places";
import { Shortcuts } from "./shortcuts";
import { TenantSwitcher } from "./tenant-switcher";

const ARRIVED_MS = 500; // its title is that of the page by then

export function Shell() {
  const session = useSession();
  const [open, menu] = useDisclosure(false);
  const path = useRouterState({ select: (state) => state.location.pathname });
  useSessionWatch();
  useHotkeys([["Escape", menu.close, { preventDefault: false }]]); // dialogs close by it, too
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
            <Burger
              opened={open}
              onClick={menu.toggle}
              hiddenFrom="sm"
              size="sm"
              aria-label="Navigation"
              aria-expanded={open}
            />
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
      <Arrived path={path} />
      <AppShell.Main id="main" tabIndex={-1}>
        <Outlet />
      </AppShell.Main>
      <Finder session={session} />
      <LiveUpdates />
    </AppShell>
  );
}

/** Tells who does not see it that another page is there. */
function Arrived({ path }: { path: string }) {
  const [told, setTold] = useState("");
  const first = useRef(path);
  useEffect(() => {
    if (path === first.current) {
      return; // what a browser loads, it tells of
    }
    first.current = "";
    const timer = setTimeout(() => setTold(document.title), ARRIVED_MS);
    return () => clearTimeout(timer);
  }, [path]);
  return (
    <div className="off-screen" aria-live="polite">
      {told}
    </div>
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
  const [asking, setAsking] = useState(false);
  return (
    <>
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
          <Menu.Item onClick={leaveHere}>Log out</Menu.Item>
          <Menu.Item onClick={() => setAsking(true)}>Log out everywhere…</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      {asking && <LogOutEverywhere onClose={() => setAsking(false)} />}
    </>
  );
}
