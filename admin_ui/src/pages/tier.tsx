import "./tier.css";
import { Group, Text } from "@mantine/core";
import type { Schemas } from "../api/client";

export type Tier = Schemas["Holder"]["tier"] | "store";

export const TIERS: Record<Tier, { word: string; says: string }> = {
  device: { word: "slot", says: "in a slot: the next request on it starts at once" },
  host: { word: "memory", says: "in memory: a few milliseconds from a slot" },
  disk: { word: "disk", says: "on the replica's disk, most likely" },
  store: { word: "store", says: "in the object store only" },
};

export function tierWord(tier: string): string {
  return tier in TIERS ? TIERS[tier as Tier].word : tier;
}

/** By its word, its colour, and a frame where it should be. */
export function TierMark({ tier, home }: { tier: Tier; home: boolean }) {
  return (
    <span className="tier" data-tier={tier} data-home={home || undefined}>
      {TIERS[tier].word}
      {home && <span className="off-screen">, wanted here</span>}
    </span>
  );
}

export function TierLegend() {
  return (
    <Group gap="md" role="note" aria-label="Legend">
      {(Object.keys(TIERS) as Tier[]).map((tier) => (
        <Group key={tier} gap={6} wrap="nowrap">
          <TierMark tier={tier} home={false} />
          <Text size="xs" c="dimmed">
            {TIERS[tier].says}
          </Text>
        </Group>
      ))}
      <Group gap={6} wrap="nowrap">
        <span className="tier" data-tier="store" data-home>
          framed
        </span>
        <Text size="xs" c="dimmed">
          wanted here, or first in line
        </Text>
      </Group>
    </Group>
  );
}

/** What replicas are known by in narrow places. */
export function shortUrl(url: string): string {
  return url.replace(/^https?:\/\//, "");
}

/** On one line; the whole URL on hover. */
export function Address({ url }: { url: string }) {
  return (
    <code className="address" title={url}>
      {shortUrl(url)}
    </code>
  );
}
