const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/i;

/** The id of a request in what was pasted: the id, a header's whole line, or an error's text. */
export function requestIdIn(text: string): string | undefined {
  return UUID.exec(text)?.[0]?.toLowerCase();
}
