import {
  ConnectionFailed,
  detailsOf,
  errorOf,
  InvalidResponse,
  isClientError,
  refused,
  TokenUnavailable,
  textOf
} from "./Errors.ts"
import { abortable, type Clock, Lifetime } from "./Time.ts"

/** The credential, or a function that is asked for it at each try. */
export type Token = string | (() => string | Promise<string>)

/** What every call takes. */
export interface CallOptions {
  /** Ends the call; it then fails with the reason of the signal. */
  readonly signal?: AbortSignal
}

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

/** How JSON is read and written. */
export interface JsonFormat {
  /** Throws where the text is no JSON. */
  readonly parse: (text: string) => unknown
  readonly stringify: (value: unknown) => string
}

/** What a header carries of a token. */
const headerText = /^[\x21-\x7e\x80-\xff]*$/

/** What requests are made of. */
export interface RequestsOptions {
  /** What stands before the path of each request. */
  readonly base: string
  readonly token: Token
  readonly fetch: typeof globalThis.fetch
  /** Milliseconds within which the whole answer must be there. */
  readonly timeoutMs: number
  /** The most bytes of an answer, of an event and of a frame. */
  readonly maxResponseBytes: number
  readonly clock: Clock
  /** `JSON` without it. */
  readonly json?: JsonFormat | undefined
}

/** Sends requests with the credential, and turns whatever goes wrong into a typed error. */
export class Requests {
  constructor(private readonly options: RequestsOptions) {}

  get clock(): Clock {
    return this.options.clock
  }

  get maxResponseBytes(): number {
    return this.options.maxResponseBytes
  }

  get json(): JsonFormat {
    return this.options.json ?? JSON
  }

  /** Whether another token may be had. */
  get isTokenRenewable(): boolean {
    return typeof this.options.token === "function"
  }

  url({ path, query = {} }: Request): URL {
    const url = new URL(this.options.base + path)
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, String(value))
    }
    return url
  }

  /** The credential for one try; `""` where there is none. */
  async credential(signal: AbortSignal): Promise<string> {
    const { token: given } = this.options
    const token = (typeof given === "string" ? given : await this.renewed(given, signal)).trim()
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
  async ask<A>(request: Request, signal: AbortSignal | undefined, read: Reader<A>): Promise<A> {
    const lifetime = new Lifetime(this.clock, signal)
    const timeoutMs = request.timeoutMs ?? this.options.timeoutMs
    lifetime.limit(timeoutMs, `There is no answer within ${timeoutMs} ms`)
    try {
      return await this.attempt(lifetime.signal, async () =>
        read(await this.open(request, lifetime.signal), this.maxResponseBytes, this.json)
      )
    } finally {
      lifetime.end()
    }
  }

  /** Sends a request. Its answer is a success, of which the body is yet to be read. */
  async open(request: Request, signal: AbortSignal): Promise<Response> {
    const { body } = request
    const token = await this.credential(signal)
    return this.attempt(signal, async () => {
      const response = await this.options.fetch(this.url(request), {
        method: request.method ?? "GET",
        headers: {
          ...request.headers,
          ...(token !== "" && { authorization: `Bearer ${token}` }),
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
      throw new ConnectionFailed(reasonOf(cause), false, { cause })
    }
  }
}

/** What an error says. `fetch` of Node puts the reason into its cause. */
const reasonOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error && error.cause.message !== "" ? error.cause.message : error.message
}

/** The epoch of the log that an answer tells; `""` where it tells none. */
export const epochOf = ({ headers }: Response): string => headers.get("kv-epoch") ?? ""

/** Reads a body of at most `limitBytes`. */
export type Reader<A> = (response: Response, limitBytes: number, format: JsonFormat) => Promise<A>

/** Reads a body that must be JSON of some form. */
export const json =
  <A>(isValid: (body: A) => boolean): Reader<A> =>
  async (response, limitBytes, format) => {
    const body = parse(await textOf(response, limitBytes), isValid, format)
    if (body === undefined) throw new InvalidResponse(detailsOf(response, "The body is not what the service sends"))
    return body
  }

/** A text as JSON of some form, or `undefined`. */
export const parse = <A>(text: string, isValid: (body: A) => boolean, format: JsonFormat): A | undefined => {
  try {
    const body = format.parse(text) as A
    return isValid(body) ? body : undefined
  } catch {
    return undefined
  }
}
