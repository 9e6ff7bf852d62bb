/** Figures of requests as lines of charts. What is not complete yet is counted as far as it is; what has not
 * begun is not known. */
import type { Schemas } from "../api/client";
import type { ChartLine } from "./chart";

/** What stands for all series that are not shown. */
export const OTHERS = "(other)";

export type Metrics = Schemas["RequestMetrics"];
export type Figures = Schemas["Figures"];
type Times = "ttft_ms" | "inter_token_ms" | "queue_ms" | "total_ms";

export interface Steps {
  times: number[];
  stepS: number;
  /** Null: nobody knows yet. */
  counts: (of: (figures: Figures) => number) => (number | null)[];
  rates: (of: (figures: Figures) => number) => (number | null)[];
  /** Null, too, where nothing was measured. */
  percentiles: (of: Times, part: "p50" | "p95" | "p99") => (number | null)[];
}

const seconds = (at: string) => new Date(at).getTime() / 1000;

export function stepsOf(metrics: Metrics): Steps {
  const start = seconds(metrics.start);
  const stepS = metrics.step_s;
  const times = Array.from({ length: (seconds(metrics.end) - start) / stepS }, (_, n) => start + n * stepS);
  const found = new Map((metrics.data[0]?.points ?? []).map((point) => [seconds(point.at), point.figures]));
  const until = seconds(metrics.complete_until);
  const known = times.map((time) => Math.min(stepS, until - time));
  const counts = (of: (figures: Figures) => number) =>
    times.map((time, step) => {
      const figures = found.get(time);
      return figures === undefined ? ((known[step] ?? 0) > 0 ? 0 : null) : of(figures);
    });
  return {
    times,
    stepS,
    counts,
    rates: (of) =>
      counts(of).map((count, step) => {
        const over = known[step] ?? 0;
        return count === null || over <= 0 ? null : count / over;
      }),
    percentiles: (of, part) => times.map((time) => found.get(time)?.[of][part] ?? null),
  };
}

export const answered = (of: Figures) => of.served + of.cached + of.replayed;

export function unanswered(steps: Steps): ChartLine[] {
  return [
    { label: "Failed on our side", tone: "bad", values: steps.counts((of) => of.failed) },
    { label: "Refused by the queue", tone: "warn", values: steps.counts((of) => of.refused_by_queue) },
    { label: "Refused by a limit", tone: "third", values: steps.counts((of) => of.refused_by_limit) },
    { label: "Refused otherwise", tone: "second", values: steps.counts((of) => of.refused_otherwise) },
    { label: "Client left", tone: "calm", values: steps.counts((of) => of.client_left) },
  ];
}

export function requests(steps: Steps): ChartLine[] {
  return [
    { label: "Served", tone: "main", values: steps.counts((of) => of.served) },
    { label: "From a cache", tone: "second", values: steps.counts((of) => of.cached + of.replayed) },
    { label: "Not answered", tone: "bad", values: steps.counts((of) => of.requests - answered(of)) },
  ];
}

export function tokens(steps: Steps): ChartLine[] {
  return [
    { label: "Output", tone: "main", values: steps.rates((of) => of.completion_tokens) },
    { label: "Input", tone: "second", values: steps.rates((of) => of.prompt_tokens - of.cached_tokens) },
    { label: "Cached input", tone: "calm", values: steps.rates((of) => of.cached_tokens) },
  ];
}

export function percentiles(steps: Steps, of: Times): ChartLine[] {
  return [
    { label: "p50", tone: "main", values: steps.percentiles(of, "p50") },
    { label: "p95", tone: "warn", values: steps.percentiles(of, "p95") },
    { label: "p99", tone: "calm", dashed: true, values: steps.percentiles(of, "p99") },
  ];
}
