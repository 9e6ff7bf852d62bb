/** One request to the API of inference, and what comes back of it, piece by piece. */
import { Failure } from "../api/failure";
import { prefix } from "../place";
import type { ChatBody } from "./request";

/** Who answered, as the answer's head says. */
export interface Served {
  requestId: string;
  adapter: string | null; // null: the base
  version: string | null;
  digest: string | null;
  queueMs: number | null;
  cache: string | null;
}

export interface Usage {
  prompt: number;
  completion: number;
}

export type Piece =
  | { kind: "served"; served: Served }
  | { kind: "text"; text: string; at: number } // by the page's clock, in ms
  | { kind: "usage"; usage: Usage }
  | { kind: "finish"; reason: string }
  | { kind: "tenant"; tenant: string };

interface LimitMet {
  limit_id: string;
}

interface ErrorBody {
  message?: string;
  code?: string | null;
  param?: string | null;
  limit?: LimitMet;
}

/** What the API of inference says when it says no, and when the same may pass. */
export class Refusal extends Failure {
  readonly retryAt: Date | null;
  readonly limit: LimitMet | null;

  constructor(status: number, error: ErrorBody, headers?: Headers) {
    super(
      status,
      {
        ...(error.message === undefined ? {} : { detail: error.message }),
        ...(error.code ? { code: error.code } : {}),
        ...(error.param ? { param: error.param } : {}),
      },
      headers,
    );
    const waitMs = Number(headers?.get("retry-after-ms") ?? Number.NaN);
    this.retryAt = Number.isFinite(waitMs) ? new Date(Date.now() + waitMs) : null;
    this.limit = error.limit ?? null;
  }
}

interface Chunk {
  error?: ErrorBody;
  choices?: Array<{ delta?: { content?: string | null }; finish_reason?: string | null }>;
  usage?: { prompt_tokens: number; completion_tokens: number } | null;
}

/** Throws a `Refusal`, also for one in the middle of a stream, and an `AbortError` when it was stopped. */
export async function* ask(body: ChatBody, secret: string, signal: AbortSignal): AsyncGenerator<Piece> {
  const response = await fetch(`${prefix}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    credentials: "omit", // the key asks, and nobody's session
    cache: "no-store",
    signal,
  });
  if (!response.ok || response.body === null) {
    const told = (await response.json().catch(() => ({}))) as { error?: ErrorBody };
    throw new Refusal(response.status, told.error ?? {}, response.headers);
  }
  yield { kind: "served", served: servedBy(response.headers) };
  let ended = false;
  for await (const line of lines(response.body)) {
    ended ||= line === "data: [DONE]";
    if (line.startsWith(": motet-receipt ")) {
      const tenant = /;tenant=([0-9a-f-]+);/.exec(line)?.[1];
      if (tenant !== undefined) {
        yield { kind: "tenant", tenant };
      }
    } else if (line.startsWith("data: {")) {
      yield* pieces(JSON.parse(line.slice(6)) as Chunk, response.headers);
    }
  }
  if (!ended) {
    throw new Refusal(502, { message: "The answer broke off." }, response.headers);
  }
}

function* pieces(chunk: Chunk, headers: Headers): Generator<Piece> {
  if (chunk.error !== undefined) {
    throw new Refusal(503, chunk.error, headers);
  }
  const choice = chunk.choices?.[0];
  if (choice?.delta?.content) {
    yield { kind: "text", text: choice.delta.content, at: performance.now() };
  }
  if (choice?.finish_reason) {
    yield { kind: "finish", reason: choice.finish_reason };
  }
  if (chunk.usage) {
    yield {
      kind: "usage",
      usage: { prompt: chunk.usage.prompt_tokens, completion: chunk.usage.completion_tokens },
    };
  }
}

/** Each event of this API is one line of data, or a comment (WHATWG HTML, 9.2.6). */
async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return;
    }
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    yield* parts.map((part) => part.replace(/\r$/, ""));
  }
}

function servedBy(headers: Headers): Served {
  const queued = headers.get("x-motet-queue-ms");
  return {
    requestId: headers.get("x-request-id") ?? "",
    adapter: headers.get("x-motet-adapter"),
    version: headers.get("x-motet-version"),
    digest: headers.get("x-motet-digest"),
    queueMs: queued === null ? null : Number(queued),
    cache: headers.get("x-motet-cache"),
  };
}
