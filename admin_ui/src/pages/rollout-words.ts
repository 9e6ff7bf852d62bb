import type { Schemas } from "../api/client";

export type Rollout = Schemas["RolloutOut"];
export type Step = Schemas["Step"];
export type RollbackOn = Schemas["RollbackOn"];

export const STATE_COLORS: Record<Rollout["state"], string> = {
  running: "blue",
  paused: "orange",
  promoted: "teal",
  rolled_back: "red",
  superseded: "gray",
};

export function isActive(rollout: Rollout): boolean {
  return rollout.state === "running" || rollout.state === "paused";
}

const percents = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 1 });

export function percentText(share: number): string {
  return percents.format(share);
}

export function spanText(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) {
    return `${whole}\u00a0s`;
  }
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) {
    return whole % 60 === 0 ? `${minutes}\u00a0min` : `${minutes}\u00a0min ${whole % 60}\u00a0s`;
  }
  const hours = Math.floor(minutes / 60);
  return minutes % 60 === 0 ? `${hours}\u00a0h` : `${hours}\u00a0h ${minutes % 60}\u00a0min`;
}

export function boundsOf(on: RollbackOn): string[] {
  const found = [];
  if (on.error_rate !== null) {
    found.push(
      `more than ${percentText(on.error_rate)} of its requests fail, and more than of the old version's`,
    );
  }
  if (on.ttft_p95_ratio !== null) {
    found.push(`its first tokens take more than ${on.ttft_p95_ratio} times the old version's p95`);
  }
  if (on.not_finite) {
    found.push("an answer computes to no number");
  }
  if (on.acceptance) {
    found.push("its acceptance prompts are not passed before a step");
  }
  return found;
}
