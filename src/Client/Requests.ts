import {
  ConnectionFailed,
  detailsOf,
  errorOf,
  InvalidResponse,
  isClientError,
  refused,
  TokenUnavailable
} from "./Errors.ts"
import { abortable, type Clock, Lifetime } from "./Time.ts"

/** The credential, or a function that is asked for it at each try. */
export type Token = string | (() => string | Promise<string>)

/** One request. */
export interface Request {
  readonly method?: "GET" | "PUT" | "DELETE" | "POST"
  /** Below the prefix. */
  readonly path: string
  readonly query?: Readonly<Record<string, string | number | undefined>>
  readonly headers?: Readonly<Record<string, string>>
  /** JSON text. */
  readonly body?: string
  /** Milliseconds within which the whole answer must be there. */
  readonly timeoutMs?: number | undefined
}

/** A name as one segment of a path. */
export const segment = (kind: "namespace" | "key", name: string): string => {
  // A URL cannot hold these: they lead to another resource.
  if (name === "" || name === "." || name === "..") throw refused(`${kind} must not be "${name}"`)
  try {
    return encodeURIComponent(name).replace(/[!'()*]/g, character => `%${character.charCodeAt(0).toString(16)}`)
  } catch {
    throw refused(`${kind} must not contain a lone surrogate`)
  }
}

/** What a header carries of a token. */
const headerText = /^[\x21-\x7e\x80-\xff]*$/

/** Sends requests with the credential, and turns whatever goes wrong into a typed error. */
export class Requests {
  constructor(
    private readonly base: string,
    private readonly token: Token,
    private readonly fetch: typeof globalThis.fetch,
    private readonly timeoutMs: number,
    readonly clock: Clock
  ) {}

  /** Whether another token may be had. */
  get isTokenRenewable(): boolean {
    return typeof this.token === "function"
  }

  url({ path, query = {} }: Request): URL {
    const url = new URL(this.base + path)
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, String(value))
    }
    return url
  }

  /** The credential for one try. */
  async credential(signal: AbortSignal): Promise<string> {
    const token = (typeof this.token === "string" ? this.token : await this.renewed(this.token, signal)).trim()
    // `fetch` would repeat it in its error.
    if (!headerText.test(token)) throw refused("The token has characters that a header cannot carry")
    return token
  }

  private async renewed(token: () => string | Promise<string>, signal: AbortSignal): Promise<string> {
    try {
      return await abortable(Promise.resolve().then(token), signal)
    } catch (cause) {
      signal.throwIfAborted()
      throw new TokenUnavailable("There is no token", { cause })
    }
  }

  /** Sends a request, and reads its whole answer within the time limit. */
  async ask<A>(
    request: Request,
    signal: AbortSignal | undefined,
    read: (response: Response) => Promise<A>
  ): Promise<A> {
    const lifetime = new Lifetime(this.clock, signal)
    const timeoutMs = request.timeoutMs ?? this.timeoutMs
    lifetime.limit(timeoutMs, `There is no answer within ${timeoutMs} ms`)
    try {
      return await this.attempt(lifetime.signal, async () => read(await this.open(request, lifetime.signal)))
    } finally {
      lifetime.end()
    }
  }

  /** Sends a request. Its answer is a success, of which the body is yet to be read. */
  async open(request: Request, signal: AbortSignal): Promise<Response> {
    const { body } = request
    const token = await this.credential(signal)
    return this.attempt(signal, async () => {
      const response = await this.fetch(this.url(request), {
        method: request.method ?? "GET",
        headers: {
          ...request.headers,
          authorization: `Bearer ${token}`,
          ...(body !== undefined && { "content-type": "application/json" })
        },
        ...(body !== undefined && { body }),
        cache: "no-store",
        // The service redirects nowhere; another server must not get what is written.
        redirect: "manual",
        signal
      })
      if (!response.ok) throw await errorOf(response)
      return response
    })
  }

  /** Does something over the network that the signal ends; its failures are typed. */
  async attempt<A>(signal: AbortSignal, work: () => Promise<A>): Promise<A> {
    try {
      return await work()
    } catch (cause) {
      signal.throwIfAborted()
      if (isClientError(cause)) throw cause
      throw new ConnectionFailed(cause instanceof Error ? cause.message : String(cause), false, { cause })
    }
  }
}

/** Reads a body that must be JSON of some form. */
export const json =
  <A>(isValid: (body: A) => boolean) =>
  async (response: Response): Promise<A> => {
    const text = await response.text()
    const body = parse(text, isValid)
    if (body === undefined) throw new InvalidResponse(detailsOf(response, "The body is not what the service sends"))
    return body
  }

/** A text as JSON of some form, or `undefined`. */
export const parse = <A>(text: string, isValid: (body: A) => boolean): A | undefined => {
  try {
    const body: A = JSON.parse(text)
    return isValid(body) ? body : undefined
  } catch {
    return undefined
  }
}
