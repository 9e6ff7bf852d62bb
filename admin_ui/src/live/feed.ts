/** The stream of what changes, outside of React: one for the page, none while nobody looks at it. */
import { prefix } from "../place";

/** As the API tells it (docs/API.md, Changes): what to read again. */
export interface Change {
  id: string;
  kind: string;
  tenant: string | null;
  objects: string[];
  at: string;
}

interface Listener {
  onChange: (change: Change) => void;
  /** Something may have been missed. */
  onMissed: () => void;
  onLive: (live: boolean) => void;
}

const AGAIN_MS = 30_000; // after a refusal: too many are open, or nobody is logged in; pages poll meanwhile

/** Follows until the function that it gives is called. A stream that is cut is opened again by the browser; one
 * that is refused, after a while. `late`: what the page shows may be from before the stream begins. */
export function follow(path: string, listener: Listener, late: boolean): () => void {
  let source: EventSource | null = null;
  let timer: number | undefined;
  let place: string | null = null;
  let missed = late;
  let over = false; // the session is: another one begins anew

  const close = () => {
    window.clearTimeout(timer);
    source?.close();
    source = null;
    listener.onLive(false);
  };
  const noted = (event: MessageEvent) => {
    place = event.lastEventId || place;
  };
  const open = () => {
    close();
    if (document.visibilityState !== "visible" || over) {
      return;
    }
    const after = place === null ? "" : `?after=${encodeURIComponent(place)}`;
    source = new EventSource(prefix + path + after);
    source.addEventListener("begin", (event) => {
      noted(event);
      listener.onLive(true);
      if (missed || !(JSON.parse(event.data) as { complete: boolean }).complete) {
        missed = false;
        listener.onMissed();
      }
    });
    source.addEventListener("change", (event) => {
      noted(event);
      listener.onChange(JSON.parse(event.data) as Change);
    });
    source.addEventListener("reset", (event) => {
      noted(event);
      listener.onMissed();
    });
    source.addEventListener("end", (event) => {
      if ((JSON.parse(event.data) as { reason: string }).reason === "session_ended") {
        over = true;
        close();
      }
    });
    source.addEventListener("error", () => {
      listener.onLive(false);
      if (source?.readyState === EventSource.CLOSED) {
        missed ||= place === null; // of what comes until it begins, nobody tells
        timer = window.setTimeout(open, AGAIN_MS * (1 + Math.random()));
      }
    });
  };

  document.addEventListener("visibilitychange", open);
  open();
  return () => {
    document.removeEventListener("visibilitychange", open);
    close();
  };
}
