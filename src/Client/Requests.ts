/** Sends requests over HTTP and reads their answers; opens WebSockets. Both send the credential as the host can. */
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
import { abortable, type Clock, Lifetime, systemClock } from "./Time.ts"

/** The credential, or a function that returns it for each attempt. */
export type Token = string | (() => string | Promise<string>)

/** Options of every call. */
export interface CallOptions {
  /** Ends the call; it then fails with the reason of the signal. */
  readonly signal?: AbortSignal
}

/** One request. */
export interface Request {
  readonly method?: "GET" | "PUT" | "DELETE" | "POST"
  /** Below the prefix. */
  readonly path: string
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>
  readonly headers?: Readonly<Record<string, string>>
  /** JSON text. */
  readonly body?: string
  /** The time limit of the complete answer in milliseconds. */
  readonly timeoutMs?: number | undefined
}

/** A name as one segment of a path. */
export const segment = (kind: "namespace" | "key" | "session", name: string): string => {
  // A URL cannot contain these: they address another resource.
  if (name === "" || name === "." || name === "..") throw refused(`${kind} must not be "${name}"`)
  try {
    return encodeURIComponent(name).replace(/[!'()*]/g, character => `%${character.charCodeAt(0).toString(16)}`)
  } catch {
    throw refused(`${kind} must not contain a lone surrogate`)
  }
}

/** How JSON is read and written. */
export interface JsonFormat {
  /** Throws if the text is not JSON. */
  readonly parse: (text: string) => unknown
  readonly stringify: (value: unknown) => string
}

/** The characters of a token that a header can have. */
const headerText = /^[\x21-\x7e\x80-\xff]*$/

/** The base address, the credential, and limits of requests. */
export interface RequestsOptions {
  /** The address before the path of each request. */
  readonly base: string
  readonly token: Token
  readonly fetch?: typeof globalThis.fetch | undefined
  /** The time limit of the complete answer in milliseconds. */
  readonly timeoutMs: number
  /** The maximum size of an answer, an event and a frame in bytes; default 64 MiB. */
  readonly maxResponseBytes?: number | undefined
  readonly clock?: Clock | undefined
  /** Default `JSON`. */
  readonly json?: JsonFormat | undefined
}

/** Sends requests with the credential. All failures are typed errors. */
export class Requests {
  readonly clock: Clock
  readonly maxResponseBytes: number
  readonly json: JsonFormat
  readonly #fetch: typeof globalThis.fetch

  constructor(private readonly options: RequestsOptions) {
    this.clock = options.clock ?? systemClock
    this.maxResponseBytes = options.maxResponseBytes ?? 64 * 1024 * 1024
    this.json = options.json ?? JSON
    this.#fetch = (options.fetch ?? globalThis.fetch).bind(globalThis)
  }

  /** Whether a function can return another token. */
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

  /** The credential for one attempt; `""` if there is none. */
  async credential(signal: AbortSignal): Promise<string> {
    const { token: given } = this.options
    const token = (typeof given === "string" ? given : await this.renewed(given, signal)).trim()
    // The error of `fetch` would contain it.
    if (!headerText.test(token)) throw refused("The token has characters that a header cannot have")
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

  /** Sends a request and reads its complete answer within the time limit. */
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

  /** Sends a request. Returns a successful answer whose body is not read yet. */
  async open(request: Request, signal: AbortSignal): Promise<Response> {
    const { body } = request
    const token = await this.credential(signal)
    return this.attempt(signal, async () => {
      const response = await this.#fetch(this.url(request), {
        method: request.method ?? "GET",
        headers: {
          ...request.headers,
          ...(token !== "" && { authorization: `Bearer ${token}` }),
          ...(body !== undefined && { "content-type": "application/json" })
        },
        ...(body !== undefined && { body }),
        cache: "no-store",
        // The service does not redirect; another server must not receive the request.
        redirect: "manual",
        signal
      })
      if (!response.ok) throw await errorOf(response)
      return response
    })
  }

  /** Runs work on the network until the signal aborts. Its failures are typed. */
  async attempt<A>(signal: AbortSignal, work: () => Promise<A>): Promise<A> {
    try {
      // A `fetch` may lose the signal after the headers.
      return await abortable(work(), signal)
    } catch (cause) {
      signal.throwIfAborted()
      if (isClientError(cause)) throw cause
      throw new ConnectionFailed(reasonOf(cause), false, { cause })
    }
  }
}

/** The message of an error. The errors of `fetch` in Node have the reason in their cause. */
const reasonOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error && error.cause.message !== "" ? error.cause.message : error.message
}

/** The epoch of the log in an answer; `""` if there is none. */
export const epochOf = ({ headers }: Response): string => headers.get("kv-epoch") ?? ""

/** Reads a body of at most `limitBytes`. */
export type Reader<A> = (response: Response, limitBytes: number, format: JsonFormat) => Promise<A>

/** Reads a body that must be valid JSON of a certain form. */
export const json =
  <A>(isValid: (body: A) => boolean): Reader<A> =>
  async (response, limitBytes, format) => {
    const body = parse(await textOf(response, limitBytes), isValid, format)
    if (body === undefined) throw new InvalidResponse(detailsOf(response, "The body is not what the service sends"))
    return body
  }

/** A text as JSON of a certain form, or `undefined`. */
export const parse = <A>(text: string, isValid: (body: A) => boolean, format: JsonFormat): A | undefined => {
  try {
    const body = format.parse(text) as A
    return isValid(body) ? body : undefined
  } catch {
    return undefined
  }
}

/** The used part of the WebSocket interface. */
export interface WebSocketLike {
  addEventListener(type: "open" | "error", listener: () => void): void
  addEventListener(type: "message", listener: (event: { readonly data: unknown }) => void): void
  addEventListener(type: "close", listener: (event: { readonly code: number; readonly reason: string }) => void): void
  close(code?: number): void
  send(frame: string): void
}

/** The WebSocket of the host, or that of the package `ws`. Their arguments after the address differ. */
export type WebSocketConstructor = new (url: string, options: never) => WebSocketLike

/** The name and version of the subprotocol. */
const subprotocol = "causeway.v1"

/**
 * Opens a WebSocket, with a credential if there is one. Browsers cannot set headers and send it as the subprotocol
 * `bearer.<credential>`, in the form that the service reads there.
 */
export const openSocket = async (
  requests: Requests,
  Constructor: WebSocketConstructor,
  request: Request,
  signal: AbortSignal,
  inSubprotocol: (token: string) => string = token => token
): Promise<WebSocketLike> => {
  const url = requests.url(request)
  url.protocol = url.protocol.replace("http", "ws")
  const token = await requests.credential(signal)
  return requests.attempt(signal, async () => connect(Constructor, url.href, token, inSubprotocol(token)))
}

const connect = (Constructor: WebSocketConstructor, url: string, token: string, bearer: string): WebSocketLike => {
  if (token === "") return new Constructor(url, [subprotocol] as never)
  try {
    return new Constructor(url, { headers: { authorization: `Bearer ${token}` } } as never)
  } catch (error) {
    // A browser takes the options for a subprotocol with an invalid name.
    if (!(error instanceof Error && error.name === "SyntaxError")) throw error
    if (!/^[\w!#$%&'*+.^`|~-]*$/.test(bearer)) throw refused("The token has characters that a subprotocol cannot have")
    return new Constructor(url, [subprotocol, `bearer.${bearer}`] as never)
  }
}

/** Text in base64url, which is valid in the name of a subprotocol. */
export const base64Url = (text: string): string =>
  btoa(String.fromCharCode(...new TextEncoder().encode(text)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "")
