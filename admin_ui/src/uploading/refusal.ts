/** Why files can't become an adapter, in the four things that whoever made them needs. */
export interface Refusal {
  /** The file, and the field in it where there is one. */
  place: string;
  found: string;
  allowed: string;
  fix: string;
}

/** A value out of a file, short enough to be shown. */
export function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length <= 80 ? text : `${text.slice(0, 77)}…`;
}
