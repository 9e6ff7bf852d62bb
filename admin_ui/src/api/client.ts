import createClient from "openapi-fetch";
import { prefix } from "../place";
import { currentCsrf, logInAgain, refreshSession } from "../session/door";
import { Failure, type ProblemBody } from "./failure";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

/** The one way to the API: paths, bodies and answers are typed by the gateway's own document. */
export const api = createClient<paths>({ baseUrl: prefix, cache: "no-store", fetch: send });

interface Answer<Data> {
  data?: Data;
  error?: unknown;
  response: Response;
}

/** The answer's body; throws a `Failure` for every answer that is none. */
export async function heard<Data>(asked: Promise<Answer<Data>>): Promise<Data> {
  return (await tagged(asked)).data;
}

/** The body with its entity tag. */
export async function tagged<Data>(
  asked: Promise<Answer<Data>>,
): Promise<{ data: Data; etag: string | null }> {
  let answer: Answer<Data>;
  try {
    answer = await asked;
  } catch (error) {
    throw error instanceof Failure ? error : new Failure(0, {});
  }
  const { response } = answer;
  if (!response.ok) {
    throw new Failure(response.status, (answer.error ?? {}) as ProblemBody, response.headers);
  }
  return { data: answer.data as Data, etag: response.headers.get("etag") };
}

/** A session that ended opens a dialog over the page, and the request is sent once more after it; nothing that
 * was typed is lost. A CSRF token of a session before is exchanged for the current one, once. */
async function send(request: Request): Promise<Response> {
  const again = request.clone();
  const first = await fetch(signed(request));
  if (first.status === 401) {
    await logInAgain();
    return fetch(signed(again));
  }
  if (first.status === 403 && (await codeOf(first)) === "csrf_failed") {
    await refreshSession();
    return fetch(signed(again));
  }
  return first;
}

function signed(request: Request): Request {
  if (request.method !== "GET") {
    request.headers.set("x-csrf-token", currentCsrf());
  }
  return request;
}

async function codeOf(response: Response): Promise<string | undefined> {
  const body = (await response
    .clone()
    .json()
    .catch(() => ({}))) as ProblemBody;
  return body.code;
}
