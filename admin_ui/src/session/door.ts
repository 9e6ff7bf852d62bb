/** Who is logged in, outside of React: what requests need of it, and the way back in when a session ended. */
import { QueryClient } from "@tanstack/react-query";
import { Failure, failureOf, type ProblemBody } from "../api/failure";
import type { components } from "../api/schema";
import { prefix } from "../place";

export type Session = components["schemas"]["SessionOut"];
export type Providers = components["schemas"]["ProvidersOut"];

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 30_000,
      retry: (count, error) => failureOf(error).passing && count < 3,
      retryDelay: (count) => Math.min(500 * 2 ** count, 5_000),
    },
  },
});

export const SESSION = ["session"] as const;
const channel = new BroadcastChannel("motet-session");

let asking: { promise: Promise<void>; resolve: () => void } | null = null;
let listeners: Array<(open: boolean) => void> = [];

export function currentCsrf(): string {
  return queries.getQueryData<Session>(SESSION)?.csrf_token ?? "";
}

/** Not through the API's client, which would ask to log in. */
export async function fetchSession(touch: boolean): Promise<Session> {
  return ask<Session>("GET", `/api/v1/session${touch ? "" : "?touch=false"}`);
}

export async function refreshSession(): Promise<Session> {
  const session = await fetchSession(true);
  accept(session);
  return session;
}

export async function logIn(email: string, password: string): Promise<Session> {
  const session = await ask<Session>("POST", "/api/v1/session", { email, password });
  accept(session);
  channel.postMessage("in");
  return session;
}

const lastActs = new Set<() => Promise<unknown>>();

/** What is done while the session can still do it. */
export function beforeLogOut(act: () => Promise<unknown>): () => void {
  lastActs.add(act);
  return () => lastActs.delete(act);
}

/** `everywhere`: in other browsers, too. */
export async function logOut(everywhere: boolean): Promise<void> {
  await Promise.allSettled([...lastActs].map((act) => act()));
  await ask("DELETE", everywhere ? "/api/v1/sessions" : "/api/v1/session");
  channel.postMessage("out");
}

export function fetchProviders(): Promise<Providers> {
  return ask<Providers>("GET", "/api/v1/session/providers");
}

/** What was heard of the session: who has it, and what it may. In another tab it may have become somebody else's. */
export function noteSession(session: Session): void {
  const before = queries.getQueryData<Session>(SESSION);
  if (before === undefined || asking !== null) {
    return; // it begins with `accept`
  }
  if (before.admin.id !== session.admin.id || before.csrf_token !== session.csrf_token) {
    accept(session);
  } else if (before.can.join() !== session.can.join()) {
    queries.setQueryData(SESSION, session);
  }
}

/** Resolves when somebody is logged in again. One dialog, however many requests wait for it. */
export function logInAgain(): Promise<void> {
  if (asking === null) {
    let resolve = () => {};
    const promise = new Promise<void>((done) => {
      resolve = done;
    });
    asking = { promise, resolve };
    tell(true);
  }
  return asking.promise;
}

/** Whether the dialog is open; told to whoever shows it. */
export function onAsking(listener: (open: boolean) => void): () => void {
  listeners.push(listener);
  listener(asking !== null);
  return () => {
    listeners = listeners.filter((one) => one !== listener);
  };
}

/** Another tab, or the window of a provider, logged in or out. */
export function onOtherTabs(): () => void {
  const heard = (event: MessageEvent) => {
    if (event.data === "in" && asking !== null) {
      void refreshSession().catch(() => {}); // it is still asked for
    } else if (event.data === "out") {
      void logInAgain();
    }
  };
  channel.addEventListener("message", heard);
  return () => channel.removeEventListener("message", heard);
}

export function tellOtherTabs(): void {
  channel.postMessage("in");
}

/** Somebody else than before may see nothing of what is on the page: it begins anew. */
function accept(session: Session): void {
  const before = queries.getQueryData<Session>(SESSION);
  if (before !== undefined && before.admin.id !== session.admin.id) {
    window.location.reload();
    return;
  }
  queries.setQueryData(SESSION, session);
  asking?.resolve();
  asking = null;
  tell(false);
}

function tell(open: boolean): void {
  for (const listener of listeners) {
    listener(open);
  }
}

async function ask<Data>(method: string, path: string, body?: unknown): Promise<Data> {
  const headers: Record<string, string> = {};
  if (body !== undefined) {
    headers["content-type"] = "application/json";
  }
  if (method !== "GET") {
    headers["x-csrf-token"] = currentCsrf();
  }
  let response: Response;
  try {
    response = await fetch(prefix + path, {
      method,
      headers,
      cache: "no-store",
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch {
    throw new Failure(0, {});
  }
  const text = await response.text();
  if (!response.ok) {
    throw new Failure(response.status, readProblem(text), response.headers);
  }
  return (text === "" ? undefined : JSON.parse(text)) as Data;
}

function readProblem(text: string): ProblemBody {
  try {
    return JSON.parse(text) as ProblemBody;
  } catch {
    return {};
  }
}
