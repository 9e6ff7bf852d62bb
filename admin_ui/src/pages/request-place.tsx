import { Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Navigate, useParams } from "@tanstack/react-router";
import { api, heard } from "../api/client";
import { Failure } from "../api/failure";
import { Page } from "../parts/page";
import { Read } from "../parts/states";
import { FindRequest } from "./request-find";

/** Goes to the request's own page, wherever that is. */
export function RequestPlacePage() {
  const { request } = useParams({ from: "/inside/requests/$request" });
  const found = useQuery({
    queryKey: ["request-place", request],
    queryFn: () =>
      heard(api.GET("/api/v1/requests/{request_id}", { params: { path: { request_id: request } } })),
    staleTime: 0,
  });
  if (found.data !== undefined) {
    const params = { tenant: found.data.tenant, request: found.data.id };
    return <Navigate to="/tenants/$tenant/requests/$request" params={params} replace />;
  }
  return (
    <Page title="Request" calls={[{ method: "GET", path: `/api/v1/requests/${request}` }]}>
      <Read of={found} what="the request">
        {() => null}
      </Read>
      {found.error instanceof Failure && found.error.status === 404 && (
        <Stack gap="sm">
          <NotKept />
          <FindRequest />
        </Stack>
      )}
    </Page>
  );
}

/** Why an id that somebody has may be unknown. */
export function NotKept() {
  return (
    <Text size="sm">
      A request is here a second or two after it ended, and for some days (7, unless the operator says
      otherwise). Of a flood not every refused one is kept: the list has one that stands for many. One whose
      key was not known is of nobody.
    </Text>
  );
}
