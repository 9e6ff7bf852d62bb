/** What the API says when it says no (RFC 9457), or that nothing was heard from it at all. */
export interface ProblemBody {
  detail?: string;
  code?: string;
  param?: string;
  current?: Record<string, unknown>;
}

export class Failure extends Error {
  readonly status: number;
  readonly code: string | undefined;
  readonly param: string | undefined;
  readonly requestId: string | null;
  readonly current: Record<string, unknown> | undefined;
  readonly etag: string | null;

  constructor(status: number, body: ProblemBody, headers?: Headers) {
    super(
      body.detail ?? (status === 0 ? "The gateway can't be reached." : `The gateway answered ${status}.`),
    );
    this.status = status;
    this.code = body.code;
    this.param = body.param;
    this.current = body.current;
    this.requestId = headers?.get("x-request-id") ?? null;
    this.etag = headers?.get("etag") ?? null;
  }

  /** Whether asking again may help. */
  get passing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export function failureOf(error: unknown): Failure {
  return error instanceof Failure
    ? error
    : new Failure(0, { detail: error instanceof Error ? error.message : String(error) });
}
