/** Objects that are being deleted on their own page: what hears of it before the page is left would ask for them
 * once more, and be told that there are none. */
const leaving = new Set<string>();

/** `work`: deletes the object of this id and leads away from its page. */
export async function leavingOf(id: string, work: () => Promise<void>): Promise<void> {
  leaving.add(id);
  try {
    await work();
  } finally {
    leaving.delete(id);
  }
}

export function isLeft(queryKey: readonly unknown[]): boolean {
  return queryKey.some((part) => typeof part === "string" && leaving.has(part));
}
