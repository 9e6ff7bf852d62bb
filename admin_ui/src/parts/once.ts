import { useRef } from "react";

/** Lets one run of an action at a time begin: the second click of a double click comes before the button is drawn
 * anew, and would send everything twice. */
export function useOnce(): (action: () => Promise<unknown>) => Promise<void> {
  const busy = useRef(false);
  return async (action) => {
    if (busy.current) {
      return;
    }
    busy.current = true;
    try {
      await action();
    } finally {
      busy.current = false;
    }
  };
}
