import { Badge } from "@mantine/core";

const COLORS: Record<string, string> = {
  ready: "teal",
  rejected: "red",
  lost: "red",
  proving: "blue",
  uploaded: "blue",
  retired: "gray",
};

/** In the API's word. */
export function VersionState({ state }: { state: string }) {
  return <Badge color={COLORS[state] ?? "gray"}>{state}</Badge>;
}
