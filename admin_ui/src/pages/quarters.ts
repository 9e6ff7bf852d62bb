/** Moments in UTC as fields of a form have them: `2026-12-01T00:00`, of whole quarters of an hour. */
const QUARTER_MS = 900_000;
const DAY_MS = 86_400_000;

const fieldOf = (milliseconds: number) => new Date(milliseconds).toISOString().slice(0, 16);

export function lastDays(days: number): { start: string; end: string } {
  const now = Math.floor(Date.now() / QUARTER_MS) * QUARTER_MS;
  return { start: fieldOf(now - days * DAY_MS), end: fieldOf(now) };
}

/** The first of the next month. */
export function nextMonth(): string {
  const now = new Date();
  return fieldOf(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1));
}

/** As the API has it. */
export function quarter(field: string): string {
  return `${field}:00Z`;
}
