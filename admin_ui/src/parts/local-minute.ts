/** A moment as the browser's own field for them has it: `2026-11-30T14:05`, in the viewer's zone. */
export function localMinute(at: string | null | undefined): string {
  if (at === null || at === undefined) {
    return "";
  }
  const date = new Date(at);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** As the API has it; null: the field is empty. */
export function momentOfField(local: string): string | null {
  return local === "" ? null : new Date(local).toISOString();
}
