import { Alert, Anchor, Card, Group, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";
import { Failure } from "../api/failure";
import { of } from "../live/fresh";
import { CopyButton } from "../parts/copy";
import { Duration } from "../parts/duration";
import { countText, Moment, Mono } from "../parts/figures";
import { Read } from "../parts/states";
import { Billed } from "./request-billed";
import { NotKept } from "./request-place";
import { Refusal } from "./request-refusal";
import { Timeline } from "./request-timeline";
import { OutcomeBadge } from "./requests";
import { useTenant } from "./tenant-data";
import { Row } from "./tenant-overview";

export type Story = Schemas["RequestStory"];

export function RequestPage() {
  const { tenant, request } = useParams({ from: "/inside/tenants/$tenant/requests/$request" });
  const read = useQuery({
    queryKey: ["tenant", tenant, "request", request],
    queryFn: () =>
      heard(
        api.GET("/api/v1/tenants/{tenant}/requests/{request_id}", {
          params: { path: { tenant, request_id: request } },
        }),
      ),
    staleTime: Number.POSITIVE_INFINITY, // it has ended
    meta: of(),
  });
  return (
    <Stack>
      <Anchor component={Link} to={`/tenants/${tenant}/requests`} size="sm">
        All requests
      </Anchor>
      <Read of={read} what="the request">
        {(story) => <Told story={story} tenant={tenant} />}
      </Read>
      {read.error instanceof Failure && read.error.status === 404 && <NotKept />}
    </Stack>
  );
}

function Told({ story, tenant }: { story: Story; tenant: string }) {
  const found = useTenant();
  const { request } = story;
  return (
    <Stack>
      <Group gap="sm">
        <Title order={2} size="h4">
          Request <Mono>{request.id}</Mono>
        </Title>
        <OutcomeBadge line={request} />
        <CopyButton text={request.id} label="Copy id" />
      </Group>
      <Alert color={request.outcome === "failed" ? "red" : "indigo"} p="sm" aria-label="What became of it">
        {story.explanation}
      </Alert>
      <Refusal story={story} tenant={tenant} />
      <Timeline story={story} />
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        <About story={story} tenant={tenant} />
        {found.data?.can.includes("read_usage") && <Billed story={story} tenant={tenant} />}
      </SimpleGrid>
    </Stack>
  );
}

function About({ story, tenant }: { story: Story; tenant: string }) {
  const { request, engine } = story;
  return (
    <Card withBorder>
      <Title order={3} size="h5" mb="sm">
        About
      </Title>
      <Table variant="vertical" layout="auto">
        <Table.Tbody>
          <Row name="Came">
            <Moment at={request.came_at} />
          </Row>
          <Row name="Ended">
            <Moment at={story.ended_at} />, after <Duration ms={request.total_ms} />
          </Row>
          <Row name="Endpoint">
            <Mono>{story.endpoint}</Mono>
          </Row>
          <Row name="Model">
            {request.model === null ? "not known when it ended" : <Mono>{request.model}</Mono>}
          </Row>
          {request.adapter !== null && (
            <Row name="Adapter">
              <Anchor component={Link} to={`/tenants/${tenant}/adapters/${request.adapter}`}>
                {request.adapter}
              </Anchor>{" "}
              {request.version !== null && `version ${request.version}`}
            </Row>
          )}
          <Row name="Key">
            <Anchor component={Link} to={`/tenants/${tenant}/keys/${request.key_id}`} className="mono">
              {request.key_id}
            </Anchor>
          </Row>
          <Row name="Class">{request.service_class}</Row>
          {request.stream !== null && <Row name="Streamed">{request.stream ? "yes" : "no"}</Row>}
          {story.replica !== null && (
            <Row name="Replica">
              <Mono>{story.replica}</Mono>
              {story.attempts > 1 && `, after ${story.attempts} attempts`}
            </Row>
          )}
          {request.adapter !== null && engine?.adapter_tier != null && (
            <Row name="Its adapter lay">
              {engine.adapter_tier}; loading took <Duration ms={engine.adapter_load_ms} />
            </Row>
          )}
          {story.client_request_id !== null && (
            <Row name="Client's own id">
              <Mono>{story.client_request_id}</Mono>
            </Row>
          )}
          {story.client_retries !== null && <Row name="Client's retries">{story.client_retries}</Row>}
          {story.original_request_id !== null && (
            <Row name="Answer of">
              <Anchor
                component={Link}
                to={`/tenants/${tenant}/requests/${story.original_request_id}`}
                className="mono"
              >
                {story.original_request_id}
              </Anchor>
            </Row>
          )}
          {request.stands_for > 1 && (
            <Row name="Stands for">{countText(request.stands_for, "alike requests")}</Row>
          )}
        </Table.Tbody>
      </Table>
      <Text size="sm" c="dimmed" mt="sm">
        Prompts and answers are not kept.
      </Text>
    </Card>
  );
}
