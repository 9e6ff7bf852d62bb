const some = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });

/** Milliseconds as people read them; null is "unknown", and never 0. */
export function durationText(ms: number | null): string {
  if (ms === null) {
    return "unknown";
  }
  if (ms < 1_000) {
    return `${(ms < 100 ? some : whole).format(ms)}\u00a0ms`;
  }
  return ms < 60_000 ? `${some.format(ms / 1_000)}\u00a0s` : `${some.format(ms / 60_000)}\u00a0min`;
}

export function Duration({ ms }: { ms: number | null }) {
  return (
    <span className="figures" title={ms === null ? undefined : `${ms}\u00a0ms`}>
      {durationText(ms)}
    </span>
  );
}
