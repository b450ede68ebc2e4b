import type { OutgoingHttpHeaders } from "node:http"
import { expect } from "@effect/vitest"
import { Context, Effect, Layer, type Scope } from "effect"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import { keys, type Transport } from "../../Harness.ts"
import type { Steps } from "../Steps.ts"
import * as Client from "./Client.ts"
import * as Contract from "./Contract.ts"
import * as Wire from "./Wire.ts"

/** A service under test, reached over the network, and the store behind it. */
export class Site extends Context.Tag("test/Site")<
  Site,
  {
    readonly port: number
    readonly url: string
    readonly client: Client.Client
    readonly store: typeof Store.Service
    readonly log: typeof ChangeLog.Service
  }
>() {}

/** Serves a store over a transport. */
export const site = (
  transport: Transport,
  store: Layer.Layer<Store | ChangeLog, unknown>
): Effect.Effect<typeof Site.Service, unknown, Scope.Scope> =>
  Effect.gen(function* () {
    const context = yield* Layer.build(store)
    const served = yield* transport.serve(Layer.succeedContext(context))
    const client = yield* Client.make(served.port)
    return { ...served, client, store: Context.get(context, Store), log: Context.get(context, ChangeLog) }
  })

/** Registers one case. The cases of a suite share one service, so that each uses its own namespaces. */
export type Check = (title: string, body: () => Steps<Site | Scope.Scope>) => void

/** The options of a request in addition to method and target. */
export interface Extras {
  readonly headers?: OutgoingHttpHeaders
  /** Sent as JSON. */
  readonly json?: unknown
  /** Sent as it is, as `application/json` unless the headers have a type. */
  readonly body?: string | Uint8Array
  /** The credential. By default the one that writes; none if it is `null`. */
  readonly key?: string | null
}

/** The headers that every answer may have without being asked about them. */
const incidental = ["date", "connection", "keep-alive", "transfer-encoding", "content-length", "x-request-id"]

/** The headers of an answer, without those that every answer has. */
export const headersOf = ({ headers }: Client.Answer): Record<string, unknown> =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !incidental.includes(name)))

/** An unavailable store is not an error in the answer about readiness. */
const isNotReady = (target: string, { status, text }: Client.Answer): boolean =>
  status === 503 && target.startsWith("/api/v1/ready?") && text === '{"ok":false}'

/** Checks every answer: errors are `{error}`, and nothing is sent but what is declared. */
const inspect = (method: string, target: string, answer: Client.Answer): void => {
  expect(Contract.breach(method, target, answer)).toBeUndefined()
  if (method === "HEAD") {
    expect(answer.bytes).toHaveLength(0)
  } else if (answer.status >= 400 && !isNotReady(target, answer)) {
    expect(answer.headers["content-type"]).toBe("application/json")
    const body: unknown = JSON.parse(answer.text)
    expect(body).toEqual({ error: expect.stringMatching(/\S/) })
    expect(answer.text).not.toMatch(/ {4}at |\.ts:|\.js:|node_modules/)
  }
  if (answer.headers["content-length"] !== undefined && method !== "HEAD") {
    expect(Number(answer.headers["content-length"])).toBe(answer.bytes.length)
  }
}

export const bearer = (key: string): string => `Bearer ${key}`

/** Sends one request and inspects its answer. */
export const call = (method: string, target: string, extras: Extras = {}): Effect.Effect<Client.Answer, Error, Site> =>
  Effect.gen(function* () {
    const { client } = yield* Site
    const { json, key = keys.write } = extras
    const body = extras.body ?? (json === undefined ? undefined : JSON.stringify(json))
    const headers = {
      ...(key === null ? {} : { authorization: bearer(key) }),
      ...(body === undefined
        ? {}
        : { "content-type": "application/json", "content-length": String(Buffer.byteLength(body)) }),
      ...extras.headers
    }
    const answer = yield* client({ method, target, headers, body })
    inspect(method, target, answer)
    return answer
  })

/** Opens a bare connection to the service. */
export const wire: Effect.Effect<Wire.Wire, Error, Site | Scope.Scope> = Effect.flatMap(Site, ({ port }) =>
  Wire.open(port)
)

/** The head of a request for a bare connection, with a credential and a host. */
export const head = (requestLine: string, ...headers: ReadonlyArray<string>): string =>
  [`${requestLine} HTTP/1.1`, "Host: localhost", `Authorization: ${bearer(keys.write)}`, ...headers, "", ""].join(
    "\r\n"
  )

let spaces = 0

/** A namespace that no other case uses. */
export const space = (): string => `tenant:t${++spaces}/area`

/** The tenant that such a namespace belongs to. */
export const tenantOf = (namespace: string): string => namespace.slice("tenant:".length, namespace.indexOf("/"))

export const segment = encodeURIComponent

/** The target of an entry. */
export const at = (namespace: string, key: string): string => `/api/v1/kv/${segment(namespace)}/${segment(key)}`

/** The target of a namespace. */
export const listAt = (namespace: string): string => `/api/v1/kv/${segment(namespace)}`

export const put = (namespace: string, key: string, value: unknown, extras: Extras = {}) =>
  call("PUT", at(namespace, key), { json: { value }, ...extras })

export const get = (namespace: string, key: string, extras: Extras = {}) => call("GET", at(namespace, key), extras)

export const remove = (namespace: string, key: string, extras: Extras = {}) =>
  call("DELETE", at(namespace, key), extras)

export const batch = (operations: ReadonlyArray<unknown>, extras: Extras = {}) =>
  call("POST", "/api/v1/batch", { json: { operations }, ...extras })

/** Sets keys of a namespace, a thousand at a time; the values are their indexes unless one is given. */
export const setAll = (namespace: string, keys: ReadonlyArray<string>, value?: unknown) =>
  Effect.gen(function* () {
    for (let start = 0; start < keys.length; start += 1000) {
      const part = keys.slice(start, start + 1000)
      const operations = part.map((key, index) => ({ op: "set", namespace, key, value: value ?? start + index }))
      expect((yield* batch(operations)).status).toBe(200)
    }
  })

/** So many keys, in order. */
export const numbered = (count: number): ReadonlyArray<string> =>
  Array.from({ length: count }, (_, index) => `k${String(index).padStart(5, "0")}`)

/** A body of a certain type, as the case that reads it knows. */
export const bodyOf = <A = unknown>(answer: Client.Answer): A => JSON.parse(answer.text) as A

export const errorOf = (answer: Client.Answer): string => bodyOf<{ readonly error: string }>(answer).error

/** Expects an error whose message names each of the texts. */
export const expectError = (answer: Client.Answer, status: number, ...named: ReadonlyArray<string>): void => {
  expect([answer.status, answer.text]).toEqual([status, expect.any(String)])
  for (const text of named) expect(errorOf(answer)).toContain(text)
}

export interface EntryBody {
  readonly namespace: string
  readonly key: string
  readonly value: unknown
  readonly version: number
  readonly updatedBy: string
  readonly updatedAt: number
  readonly expiresAt: number | null
}

export interface ChangeBody {
  readonly seq: number
  readonly op: string
  readonly namespace: string
  readonly key: string
  readonly value: unknown
  readonly version: number
  readonly actor: string
  readonly timestamp: number
  readonly tenantId: string
}

export interface ChangesBody {
  readonly changes: ReadonlyArray<ChangeBody>
  readonly lastSeq: number
}

export const items = (answer: Client.Answer): ReadonlyArray<EntryBody> =>
  bodyOf<{ readonly items: ReadonlyArray<EntryBody> }>(answer).items

/** Where the next page is, if there is one, found as an HTTP client finds it: relative to the page at hand. */
const nextOf = (answer: Client.Answer, base: string, target: string): string | undefined => {
  const { link } = answer.headers
  if (link === undefined) return undefined
  const found = /^<([^>]*)>; rel="next"$/.exec(String(link))
  expect(found).not.toBeNull()
  const url = new URL(found![1]!, new URL(target, base))
  expect(url.origin).toBe(new URL(base).origin)
  return url.pathname + url.search
}

/** The query of the next page of a page that is not the last. */
export const nextQuery = (answer: Client.Answer): URLSearchParams =>
  new URL(/<([^>]*)>/.exec(String(answer.headers.link))![1]!, "http://localhost").searchParams

/** All pages of a list from one on. */
export const pages = (first: string) =>
  Effect.gen(function* () {
    const { url } = yield* Site
    const all: Array<Client.Answer> = []
    for (let target: string | undefined = first; target !== undefined; ) {
      const answer: Client.Answer = yield* call("GET", target)
      expect([target, answer.status]).toEqual([target, 200])
      all.push(answer)
      target = nextOf(answer, url, target)
    }
    return all
  })

/** Polls the change log once. */
export const changes = (query: string, extras: Extras = {}): Effect.Effect<ChangesBody, Error, Site> =>
  Effect.map(call("GET", `/api/v1/changes?${query}`, extras), answer => {
    expect([answer.status, answer.text]).toEqual([200, expect.any(String)])
    return bodyOf<ChangesBody>(answer)
  })

/** The last `seq` of the log. */
export const end: Effect.Effect<number, Error, Site> = Effect.map(call("HEAD", listAt("nobody's")), answer =>
  Number(answer.headers["kv-last-seq"])
)

/** Follows the log to its end, as a client does. */
export const follow = (after: number, query = ""): Effect.Effect<ReadonlyArray<ChangeBody>, Error, Site> =>
  Effect.gen(function* () {
    const seen: Array<ChangeBody> = []
    for (let at = after; ; ) {
      const page = yield* changes(`after=${at}&limit=1000${query}`)
      seen.push(...page.changes)
      if (page.lastSeq <= at) return seen
      at = page.lastSeq
    }
  })

/** The changes of one namespace since a seq. */
export const changesOf = (namespace: string, after: number) =>
  Effect.map(follow(after), all => all.filter(change => change.namespace === namespace))
