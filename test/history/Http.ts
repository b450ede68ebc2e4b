/** Requests as the workload makes them: each is sent once and never again, however it ends. */
import { Agent, type IncomingMessage, request as send } from "node:http"
import { Data, Effect } from "effect"

/** No answer came, or only a part of it: the outcome of the request is unknown. */
export class NoAnswer extends Data.TaggedError("NoAnswer")<{
  readonly reason: string
  /** Whether the request was certainly never sent. */
  readonly isUnsent: boolean
}> {}

export interface Answer {
  readonly status: number
  readonly headers: IncomingMessage["headers"]
  readonly body: string
}

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

/** Sends a request to a base address and reads the answer. */
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
