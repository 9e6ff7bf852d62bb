/** After a release an old page may ask for a part that is gone. It loads the new one, once, and never over what is
 * typed or sent; otherwise it says so, and leaves when to the person. */
import { hasUnsaved } from "./parts/edits";

const RELOADED = "motet-reloaded";
const AGAIN_MS = 60_000;
const OUTDATED =
  "There is a newer version of this page, which has to be loaded first; or the gateway can't be reached.";

export function isOutdated(error: unknown): boolean {
  return error instanceof Error && error.message === OUTDATED;
}

export function watchForReleases(): void {
  window.addEventListener("vite:preloadError", (event) => {
    event.payload.message = OUTDATED; // for people; and the router reloads, whatever is typed, for what browsers say
    if (!hasUnsaved() && sessionStorage.getItem(RELOADED) === null) {
      void loadNewer(() => !hasUnsaved());
    }
  });
  window.setTimeout(() => sessionStorage.removeItem(RELOADED), AGAIN_MS);
}

/** Only once the gateway answers: a page that is loaded while it is away is the browser's own, and all that was
 * shown is lost. */
export async function loadNewer(still: () => boolean = () => true): Promise<void> {
  const headers = { accept: "text/html" };
  const answer = await fetch(window.location.href, { headers, cache: "no-store" }).catch(() => null);
  if (answer?.ok && still()) {
    sessionStorage.setItem(RELOADED, "1");
    window.location.reload();
  }
}
