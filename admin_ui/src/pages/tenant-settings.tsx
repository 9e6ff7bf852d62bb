import { SimpleGrid } from "@mantine/core";
import { TenantCaches } from "./tenant-caches";
import { useTenant } from "./tenant-data";
import { TenantLeaving } from "./tenant-leaving";
import { TenantRetention } from "./tenant-retention";

export function TenantSettings() {
  const tenant = useTenant();
  if (tenant.data === undefined) {
    return null;
  }
  const { can } = tenant.data;
  const leaves =
    can.includes("offboard") || can.includes("undo_offboarding") || can.includes("read_offboarding");
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }}>
      {can.includes("read_retention") && <TenantRetention tenant={tenant.data} />}
      {can.includes("read_caches") && <TenantCaches tenant={tenant.data} />}
      {leaves && <TenantLeaving tenant={tenant.data} />}
    </SimpleGrid>
  );
}
