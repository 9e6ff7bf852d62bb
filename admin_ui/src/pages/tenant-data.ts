import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { api, heard, type Schemas } from "../api/client";

export type Tenant = Schemas["TenantOut"];

export function useTenantId(): string {
  return useParams({ from: "/inside/tenants/$tenant" }).tenant;
}

export function useTenant() {
  return useTenantOf(useTenantId());
}

export function useTenantOf(id: string) {
  return useQuery({
    queryKey: ["tenant", id],
    queryFn: () => heard(api.GET("/api/v1/tenants/{tenant}", { params: { path: { tenant: id } } })),
  });
}
