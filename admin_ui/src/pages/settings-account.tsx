import {
  Button,
  Card,
  Group,
  SegmentedControl,
  SimpleGrid,
  Stack,
  Table,
  Text,
  Title,
  useMantineColorScheme,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Moment, Mono } from "../parts/figures";
import { Read } from "../parts/states";
import { fetchProviders } from "../session/door";
import { useSession } from "../session/hooks";
import { LogOutEverywhere } from "../session/log-out";
import { Row } from "./tenant-overview";

const SCHEMES = [
  { value: "auto", label: "As the system" },
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
] as const;

export function AccountSettings() {
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }}>
      <Account />
      <Colours />
      <Providers />
    </SimpleGrid>
  );
}

function Account() {
  const session = useSession();
  const [asking, setAsking] = useState(false);
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Account
      </Title>
      <Table variant="vertical" layout="auto" mb="md">
        <Table.Tbody>
          <Row name="Email">
            <Mono>{session.admin.email}</Mono>
          </Row>
          <Row name="Logged in by">{session.provider ?? "password"}</Row>
          <Row name="Session ends">
            <Moment at={session.ends_at} />
          </Row>
        </Table.Tbody>
      </Table>
      <Group>
        {session.can.includes("change_password") && (
          <Button component={Link} to="/password" variant="default">
            Change password…
          </Button>
        )}
        <Button color="red" variant="light" onClick={() => setAsking(true)}>
          Log out everywhere…
        </Button>
      </Group>
      {asking && <LogOutEverywhere onClose={() => setAsking(false)} />}
    </Card>
  );
}

function Colours() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Colours
      </Title>
      <SegmentedControl
        aria-label="Colours"
        data={[...SCHEMES]}
        value={colorScheme}
        onChange={setColorScheme}
      />
      <Text size="sm" c="dimmed" mt="xs">
        Kept in this browser.
      </Text>
    </Card>
  );
}

/** What the installation is set up with; its settings change it, and nothing here. */
function Providers() {
  const read = useQuery({ queryKey: ["providers"], queryFn: fetchProviders, staleTime: 300_000 });
  return (
    <Card withBorder>
      <Title order={2} size="h4" mb="sm">
        Ways to log in
      </Title>
      <Read of={read} what="the ways to log in">
        {(found) => (
          <Stack gap="xs">
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th scope="col">Name</Table.Th>
                  <Table.Th scope="col">Id</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {found.data.map((provider) => (
                  <Table.Tr key={provider.id}>
                    <Table.Td>{provider.name}</Table.Td>
                    <Table.Td>
                      <Mono>{provider.id}</Mono>
                    </Table.Td>
                  </Table.Tr>
                ))}
                {found.password && (
                  <Table.Tr>
                    <Table.Td>Password</Table.Td>
                    <Table.Td>
                      <Mono>password</Mono>
                    </Table.Td>
                  </Table.Tr>
                )}
              </Table.Tbody>
            </Table>
            <Text size="sm" c="dimmed">
              Set by <Mono>MOTET_OIDC_PROVIDERS</Mono> where the gateway runs.
            </Text>
          </Stack>
        )}
      </Read>
    </Card>
  );
}
