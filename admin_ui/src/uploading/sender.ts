import { defaultOptions, Upload } from "tus-js-client";
import { Failure, type ProblemBody } from "../api/failure";
import { prefix } from "../place";
import { Carrier } from "./carrier";

const CHUNK_BYTES = 8 * 1024 * 1024; // what a broken request loses at most
const LEAST_CHUNK_BYTES = 256 * 1024;
const HASHED_BYTES = 256 * 1024 * 1024; // what is held in memory for its digest
const PAUSES_MS = [200, 500, 1_000, 2_000, ...Array.from({ length: 120 }, () => 5_000)];
const PASSING = [0, 408, 423, 429, 460];
const PASSING_CODES = ["wrong_offset", "upload_overtaken"];

/** An upload that the gateway has already, whole or in part. */
export interface Begun {
  id: string;
  file: string;
  bytes: number;
  received: number;
  sha256: string | null;
}

export interface Told {
  /** Of all files, bytes that are there already when a file's turn comes. */
  from: (bytes: number) => void;
  /** Of all files, bytes that are on their way or there. */
  sent: (bytes: number) => void;
  /** Why it stands still; null: it goes on. */
  standing: (why: string | null) => void;
}

/** A file with what it is known by: the digest of its content, or, of a large one, what the disk says of it. */
export interface Named {
  file: File;
  sha256: string | null;
}

function uploadsOf(tenant: string): string {
  return `${window.location.origin}${prefix}/api/v1/tenants/${tenant}/uploads`;
}

/** What the gateway takes in one upload, in bytes; null: it did not say. */
export async function mostBytesOf(tenant: string): Promise<number | null> {
  const answer = await fetch(uploadsOf(tenant), { method: "OPTIONS" });
  const most = Number(answer.headers.get("tus-max-size"));
  return answer.ok && most > 0 ? most : null;
}

export async function named(file: File): Promise<Named> {
  if (file.size > HASHED_BYTES || !window.isSecureContext) {
    return { file, sha256: null };
  }
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return { file, sha256: Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("") };
}

/** How much of it the gateway has, among what was begun: by its digest wherever that came from, else by what this
 * browser kept of it. */
export async function begunOf(tenant: string, one: Named, begun: Begun[]): Promise<Begun | null> {
  const fits = (each: Begun) => each.file === one.file.name && each.bytes === one.file.size;
  if (one.sha256 !== null) {
    return begun.find((each) => fits(each) && each.sha256 === one.sha256) ?? null;
  }
  const kept = await defaultOptions.urlStorage.findUploadsByFingerprint(printOf(tenant, one));
  const ids = kept.map(({ uploadUrl }) => idOf(uploadUrl ?? ""));
  return begun.find((each) => fits(each) && ids.includes(each.id)) ?? null;
}

/** What this browser keeps of uploads, once they are a version, or were refused. */
export async function forget(tenant: string, files: Named[]): Promise<void> {
  for (const one of files) {
    for (const kept of await defaultOptions.urlStorage.findUploadsByFingerprint(printOf(tenant, one))) {
      await defaultOptions.urlStorage.removeUpload(kept.urlStorageKey);
    }
  }
}

/** Somebody stopped it; nothing went wrong. */
export class Stopped extends Error {}

/** Files on their way, one after the other. */
export class Sender {
  #upload: Upload | null = null;
  #stopped = false;
  #end: (reason: unknown) => void = () => {};

  constructor(
    readonly tenant: string,
    readonly told: Told,
  ) {}

  /** The ids of the uploads, once all of them are there. Throws a `Failure`, or `Stopped`. */
  async send(files: Named[], begun: Begun[]): Promise<string[]> {
    const ids: string[] = [];
    let before = 0;
    for (const one of files) {
      const found = await begunOf(this.tenant, one, begun);
      this.told.from(before + (found?.received ?? 0));
      ids.push(await this.#one(one, found, before));
      before += one.file.size;
    }
    return ids;
  }

  /** It can be gone on with. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#upload?.abort();
    this.#end(new Stopped());
  }

  #one(one: Named, begun: Begun | null, before: number): Promise<string> {
    const carrier = new Carrier();
    return new Promise((resolve, reject) => {
      if (this.#stopped) {
        throw new Stopped();
      }
      this.#end = reject;
      const upload: Upload = new Upload(one.file, {
        endpoint: uploadsOf(this.tenant),
        uploadUrl: begun === null ? null : `${uploadsOf(this.tenant)}/${begun.id}`,
        metadata: { filename: one.file.name, ...(one.sha256 === null ? {} : { sha256: one.sha256 }) },
        chunkSize: CHUNK_BYTES,
        retryDelays: PAUSES_MS,
        httpStack: carrier,
        fingerprint: async () => printOf(this.tenant, one),
        storeFingerprintForResuming: one.sha256 === null,
        onProgress: (sent) => {
          this.told.standing(null);
          this.told.sent(before + sent);
        },
        onShouldRetry: (): boolean => this.#again(upload, carrier),
        onSuccess: () => resolve(idOf(upload.url ?? "")),
        onError: () => reject(failureOf(carrier)),
      });
      this.#upload = upload;
      upload.start();
    });
  }

  /** A proxy that takes no body as large as a chunk gets smaller ones. */
  #again(upload: Upload, carrier: Carrier): boolean {
    const failure = failureOf(carrier);
    const chunk = upload.options.chunkSize ?? CHUNK_BYTES;
    if (failure.status === 413 && failure.code === undefined && chunk > LEAST_CHUNK_BYTES) {
      upload.options.chunkSize = chunk / 2;
      return true;
    }
    this.told.standing(failure.message);
    return (
      failure.status >= 500 || PASSING.includes(failure.status) || PASSING_CODES.includes(failure.code ?? "")
    );
  }
}

function printOf(tenant: string, { file }: Named): string {
  return ["motet", tenant, file.name, file.size, file.lastModified].join("|");
}

function idOf(url: string): string {
  return url.split("/").at(-1) ?? "";
}

function failureOf({ last }: Carrier): Failure {
  if (last === null) {
    return new Failure(0, {});
  }
  let body: ProblemBody = {};
  try {
    body = JSON.parse(last.getBody()) as ProblemBody;
  } catch {
    // a proxy's page, which says nothing to people
  }
  const requestId = last.getHeader("x-request-id");
  return new Failure(last.getStatus(), body, new Headers(requestId ? { "x-request-id": requestId } : {}));
}
