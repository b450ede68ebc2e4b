/** One client of the workload: it sends one request after the other, each once, and records both ends. */

import { Agent, type IncomingMessage, request as send } from "node:http"
import { Data, Duration, Effect } from "effect"
import type * as H from "./History.ts"
import type { Recorder } from "./Recorder.ts"

/** No answer came, or only a part of it: the outcome of the request is unknown. */
export class NoAnswer extends Data.TaggedError("NoAnswer")<{
  readonly reason: string
  readonly isUnsent: boolean
}> {}

export type Answer = { readonly status: number; readonly headers: IncomingMessage["headers"]; readonly body: string }

export interface Request {
  readonly method: "GET" | "PUT" | "DELETE" | "POST"
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: unknown
}

/** Connections that are kept between requests, as real clients do. */
export const agent = Effect.acquireRelease(
  // With a time limit of its own the agent heeds the server's, and does not write to a connection that is being closed.
  Effect.sync(() => new Agent({ keepAlive: true, maxSockets: 64, timeout: 60_000 })),
  agent => Effect.sync(() => agent.destroy())
)

export const ask = (
  base: string,
  { body, headers, method, path }: Request,
  { agent, key }: { readonly agent: Agent; readonly key: string }
): Effect.Effect<Answer, NoAnswer> =>
  Effect.async<Answer, NoAnswer>(resume => {
    const text = body === undefined ? undefined : JSON.stringify(body)
    const fail = (error: NodeJS.ErrnoException) =>
      resume(new NoAnswer({ reason: error.code ?? error.message, isUnsent: error.code === "ECONNREFUSED" }))
    const request = send(new URL(path, base), {
      method,
      agent,
      headers: {
        authorization: `Bearer ${key}`,
        ...headers,
        ...(text === undefined
          ? {}
          : { "content-type": "application/json", "content-length": String(Buffer.byteLength(text)) })
      }
    })
    request.on("error", fail)
    request.on("response", response => {
      let received = ""
      response.setEncoding("utf8")
      response.on("data", (part: string) => {
        received += part
      })
      response.on("error", fail)
      response.on("close", () => {
        if (response.complete) {
          resume(Effect.succeed({ status: response.statusCode ?? 0, headers: response.headers, body: received }))
        } else resume(new NoAnswer({ reason: "the answer was cut", isUnsent: false }))
      })
    })
    request.end(text)
    return Effect.sync(() => {
      request.on("error", () => {})
      request.destroy()
    })
  })

export interface Node {
  readonly name: string
  /** Its base address; `undefined` while it is known to be down. */
  readonly url: () => string | undefined
}

/** What the clients and followers of a workload share. */
export interface Session {
  readonly recorder: Recorder
  readonly agent: Agent
  readonly key: string
  /** How long to wait for an answer, beyond what was asked to wait. A guard: what takes longer has an unknown outcome. */
  readonly timeout: Duration.Duration
}

export class Unexpected extends Data.TaggedError("Unexpected")<{ readonly message: string }> {}

/** The log was replaced, or records that the reader needs were removed. */
export class Gone extends Data.TaggedError("Gone") {}

/** The result of an operation, for its client; `undefined` if it had no answer or was refused. */
export type Outcome<R> = Effect.Effect<R | undefined, Unexpected | Gone>

const path = (namespace: string, key?: string) =>
  `/api/v1/kv/${encodeURIComponent(namespace)}${key === undefined ? "" : `/${encodeURIComponent(key)}`}`

const query = (params: Readonly<Record<string, string | number | undefined>>) => {
  const present = new URLSearchParams()
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== "") present.set(name, String(value))
  }
  return present.size === 0 ? "" : `?${present}`
}

const versionIn = (etag: string | undefined): number | null => (etag === undefined ? null : Number(etag.slice(1, -1)))

const epochOf = (headers: Answer["headers"]) => {
  const epoch = headers["kv-epoch"]
  return typeof epoch === "string" ? { epoch } : {}
}

/** A page, with the position from which the client continues. */
export interface ListPage extends H.ListResult {
  readonly next: string | undefined
}

export class Client {
  constructor(
    private readonly session: Session,
    private readonly name: string
  ) {}

  /**
   * Sends a request for an action and records both ends.
   *
   * @param understand decodes the result of an answer. Failures are decoded in the same way for all
   */
  private perform<R extends H.Result>(
    node: Node,
    action: H.Action,
    request: Request,
    understand: (answer: Answer) => R,
    timeout = this.session.timeout
  ): Outcome<R> {
    const { recorder } = this.session
    return Effect.suspend((): Outcome<R> => {
      const base = node.url()
      if (base === undefined) return Effect.delay(Effect.succeed(undefined), pauseWithoutAnswer)
      const id = recorder.invoke(this.name, node.name, action)
      const waits = action.type === "poll" ? Duration.seconds(action.wait) : Duration.zero
      return ask(base, request, this.session).pipe(
        Effect.timeoutFail({
          duration: Duration.sum(timeout, waits),
          onTimeout: () => new NoAnswer({ reason: "no answer in time", isUnsent: false })
        }),
        Effect.flatMap((answer): Outcome<R> => {
          const { body, headers, status } = answer
          // 404 and 304 are results, too.
          if (status === 200 || (action.type === "get" && (status === 304 || status === 404))) {
            const result = understand(answer)
            recorder.ok(id, result)
            return Effect.succeed(result)
          }
          if (status === 412) {
            const isSingle = action.type === "write" && action.by !== "batch"
            recorder.fail(id, body, { refused: isSingle ? { currentVersion: versionIn(headers.etag) } : {} })
            return Effect.succeed(undefined)
          }
          if (status === 409) {
            // Another try of it is in progress; this one has had no effect.
            recorder.fail(id, body)
            return Effect.delay(Effect.succeed(undefined), pauseWithoutAnswer)
          }
          if (status === 503) {
            recorder.unknown(id, body)
            return Effect.delay(Effect.succeed(undefined), pauseWithoutAnswer)
          }
          recorder.fail(id, `${status} ${body}`, status === 410 ? { gone: true } : {})
          if (status === 410) return new Gone()
          return new Unexpected({
            message: `${request.method} ${request.path} was answered ${status} ${body.slice(0, 500)}`
          })
        }),
        Effect.catchTag("NoAnswer", ({ isUnsent, reason }) => {
          if (isUnsent) recorder.fail(id, reason)
          else recorder.unknown(id, reason)
          return Effect.delay(Effect.succeed(undefined), pauseWithoutAnswer)
        })
      )
    })
  }

  /** A PUT, a DELETE, a batch or a delete of a prefix. `timeout` is how long to wait for an answer. */
  write(node: Node, action: H.WriteAction, timeout?: Duration.Duration): Outcome<H.WriteResult> {
    const { actor, by, idempotencyKey, operations, prefixDelete } = action
    const keyed: Record<string, string> = idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }
    const send = (
      request: Request,
      understand: (body: ReturnType<typeof JSON.parse>, headers: Answer["headers"]) => H.WriteResult
    ) => this.perform(node, action, request, ({ body, headers }) => understand(JSON.parse(body), headers), timeout)
    if (prefixDelete !== undefined) {
      const { limit, namespace, prefix } = prefixDelete
      const target = `${path(namespace)}?${new URLSearchParams({ prefix, limit: String(limit), actor })}`
      return send({ method: "DELETE", path: target, headers: keyed }, ({ count, more }) => ({
        results: [],
        removed: { count, more }
      }))
    }
    if (by === "batch") {
      const request = { method: "POST", path: "/api/v1/batch", headers: keyed, body: { operations, actor } } as const
      return send(request, ({ results }) => ({ results }))
    }
    const [operation] = operations as readonly [H.Operation]
    const { ifVersion, key, namespace } = operation
    const condition: Record<string, string> =
      ifVersion === undefined ? {} : ifVersion === 0 ? { "if-none-match": "*" } : { "if-match": `"${ifVersion}"` }
    const headers = { ...condition, ...keyed }
    if (operation.op === "delete") {
      const target = `${path(namespace, key)}${query({ actor })}`
      return send({ method: "DELETE", path: target, headers }, ({ deleted }) => ({ results: [{ deleted }] }))
    }
    const { ttlMs, value } = operation
    const body = { value, actor, ...(ttlMs === undefined ? {} : { ttlMs }) }
    return send({ method: "PUT", path: path(namespace, key), headers, body }, (entry, { etag }) => ({
      results: [{ version: versionIn(etag) ?? 0 }],
      entry
    }))
  }

  get(node: Node, namespace: string, key: string, ifNoneMatch?: number): Outcome<H.GetResult> {
    const isConditional = ifNoneMatch !== undefined
    const action: H.GetAction = { type: "get", namespace, key, ...(isConditional ? { ifNoneMatch } : {}) }
    const headers: Record<string, string> = isConditional ? { "if-none-match": `"${ifNoneMatch}"` } : {}
    const request: Request = { method: "GET", path: path(namespace, key), headers }
    return this.perform(node, action, request, ({ body, status }): H.GetResult => {
      if (status === 404) return { entry: null }
      return status === 304 ? { notModified: ifNoneMatch ?? 0 } : { entry: JSON.parse(body) }
    })
  }

  read(node: Node, addresses: H.ReadAction["addresses"]): Outcome<H.ReadResult> {
    const request: Request = { method: "POST", path: "/api/v1/kv/read", body: { keys: addresses } }
    return this.perform(node, { type: "read", addresses }, request, ({ body, headers }) => ({
      entries: JSON.parse(body).items,
      lastSeq: Number(headers["kv-last-seq"]),
      ...epochOf(headers)
    }))
  }

  /** @param next the target of the `Link` header of the page before, whose last key is `afterKey` */
  list(node: Node, selection: Omit<H.ListAction, "type">, next?: string): Outcome<ListPage> {
    const { count, end, limit, namespace, prefix, reverse, start } = selection
    const flags = { ...(reverse ? { reverse: 1 } : {}), ...(count ? { count: 1 } : {}) }
    // The link leaves `count` out.
    const again = next === undefined || !count ? next : `${next}&count=1`
    const target = again ?? `${path(namespace)}${query({ prefix, start, end, limit, ...flags })}`
    let link: string | undefined
    const page = this.perform(
      node,
      { type: "list", ...selection },
      { method: "GET", path: target },
      ({ body, headers }): H.ListResult => {
        link = typeof headers.link === "string" ? /^<([^>]*)>; rel="next"$/.exec(headers.link)?.[1] : undefined
        const lastSeq = Number(headers["kv-last-seq"])
        const header = headers["kv-count"]
        const counted = header === undefined ? {} : { count: Number(header) }
        return { items: JSON.parse(body).items, lastSeq, more: link !== undefined, ...counted, ...epochOf(headers) }
      }
    )
    return Effect.map(page, result => (result === undefined ? undefined : { ...result, next: link }))
  }

  poll(node: Node, action: Omit<H.PollAction, "type">): Outcome<H.PollResult> {
    const { after, epoch, limit, tenant, wait } = action
    const target = `/api/v1/changes${query({ after, limit, tenant, wait, epoch })}`
    return this.perform(node, { type: "poll", ...action }, { method: "GET", path: target }, ({ body, headers }) => {
      const { changes, lastSeq } = JSON.parse(body)
      return { changes, lastSeq, ...epochOf(headers) }
    })
  }
}

/** A client that got no answer waits for a node to recover, instead of filling the history with attempts. */
export const pauseWithoutAnswer = Duration.millis(20)
