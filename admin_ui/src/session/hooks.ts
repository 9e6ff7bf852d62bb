import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { Failure } from "../api/failure";
import { fetchSession, logInAgain, noteSession, SESSION, type Session } from "./door";

const LOOK_MS = 4_000; // while the page is seen: so soon it notices that it was logged out elsewhere, or may do other things

/** Of a page behind the door, which does not open without one. */
export function useSession(): Session {
  const client = useQueryClient();
  const { data } = useQuery({ queryKey: SESSION, queryFn: () => fetchSession(true), staleTime: Infinity });
  if (data === undefined) {
    const kept = client.getQueryData<Session>(SESSION);
    if (kept === undefined) {
      throw new Failure(401, { detail: "Nobody is logged in." });
    }
    return kept;
  }
  return data;
}

export function useSessionWatch(): void {
  useEffect(() => {
    const look = async () => {
      if (document.visibilityState !== "visible") {
        return;
      }
      try {
        noteSession(await fetchSession(false));
      } catch (error) {
        if (error instanceof Failure && error.status === 401) {
          void logInAgain();
        }
      }
    };
    const timer = setInterval(look, LOOK_MS);
    return () => clearInterval(timer);
  }, []);
}
