import { DefaultHttpStack, type HttpRequest, type HttpResponse, type HttpStack } from "tus-js-client";
import { currentCsrf, logInAgain, refreshSession } from "../session/door";

const GONE = [404, 410];

/** Requests of tus as the page's others are sent: with the session's token, and once more after a session that
 * ended in the middle. */
export class Carrier implements HttpStack {
  readonly #stack = new DefaultHttpStack({});
  /** Of the last answer: tus tells of some failures without it. */
  last: HttpResponse | null = null;

  createRequest(method: string, url: string): HttpRequest {
    return new Carried(method, url, () => this.#stack.createRequest(method, url), this);
  }

  getName(): string {
    return "Carrier";
  }
}

class Carried implements HttpRequest {
  readonly #headers = new Map<string, string>();
  #progress: (bytesSent: number) => void = () => {};
  #now: HttpRequest;

  constructor(
    readonly method: string,
    readonly url: string,
    readonly make: () => HttpRequest,
    readonly carrier: Carrier,
  ) {
    this.#now = make();
  }

  async send(body: unknown): Promise<HttpResponse> {
    let answer = await this.#once(body);
    if (answer.getStatus() === 401) {
      await logInAgain();
      answer = await this.#once(body);
    } else if (answer.getStatus() === 403 && answer.getBody().includes("csrf_failed")) {
      await refreshSession();
      answer = await this.#once(body);
    }
    this.carrier.last = answer;
    const status = answer.getStatus();
    if (this.method === "HEAD" && status >= 400 && !GONE.includes(status)) {
      throw new Error(`The gateway answered ${status}.`); // else tus begins anew, and what is there is lost
    }
    return answer;
  }

  async #once(body: unknown): Promise<HttpResponse> {
    this.carrier.last = null;
    this.#now = this.make();
    for (const [header, value] of this.#headers) {
      this.#now.setHeader(header, value);
    }
    this.#now.setHeader("x-csrf-token", currentCsrf());
    this.#now.setProgressHandler(this.#progress);
    return this.#now.send(body);
  }

  setHeader(header: string, value: string): void {
    this.#headers.set(header, value);
  }

  getHeader(header: string): string | undefined {
    return this.#headers.get(header);
  }

  setProgressHandler(handler: (bytesSent: number) => void): void {
    this.#progress = handler;
  }

  abort(): Promise<void> {
    return this.#now.abort();
  }

  getMethod(): string {
    return this.method;
  }

  getURL(): string {
    return this.url;
  }

  getUnderlyingObject(): unknown {
    return this.#now.getUnderlyingObject();
  }
}
