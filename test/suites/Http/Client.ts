/** HTTP as the suite speaks it: paths, headers and bodies go out exactly as they are given. */
import { Agent, type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from "node:http"
import { gunzipSync } from "node:zlib"
import { Effect, type Scope } from "effect"

/** An answer, whole. */
export interface Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly bytes: Buffer
  readonly text: string
}

export interface Call {
  readonly method: string
  /** The request's target, already percent-encoded. */
  readonly target: string
  readonly headers?: OutgoingHttpHeaders
  readonly body?: string | Uint8Array | undefined
}

/** Calls one server over a bounded number of connections that are kept alive. */
export type Client = (call: Call) => Effect.Effect<Answer, Error>

/** A client whose connections end with the scope. */
export const make = (port: number): Effect.Effect<Client, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      // The agent heeds the server's `Keep-Alive: timeout` only if it has a time limit itself. Otherwise a request may be
      // sent at the moment at which the server closes the idle connection.
      Effect.sync(() => new Agent({ keepAlive: true, maxSockets: 64, timeout: 60_000 })),
      agent => Effect.sync(() => agent.destroy())
    ),
    agent =>
      ({ method, target, headers, body }) =>
        Effect.async<Answer, Error>(resume => {
          const call = request({
            host: "127.0.0.1",
            port,
            agent,
            method,
            path: target,
            ...(headers === undefined ? {} : { headers })
          })
          call.on("error", error => resume(Effect.fail(error)))
          call.on("response", response => {
            const chunks: Array<Buffer> = []
            response.on("data", (chunk: Buffer) => chunks.push(chunk))
            response.on("error", error => resume(Effect.fail(error)))
            response.on("end", () => {
              const bytes = Buffer.concat(chunks)
              resume(
                Effect.succeed({
                  status: response.statusCode ?? 0,
                  headers: response.headers,
                  bytes,
                  text: (response.headers["content-encoding"] === "gzip" && bytes.length > 0
                    ? gunzipSync(bytes)
                    : bytes
                  ).toString("utf8")
                })
              )
            })
          })
          call.end(body)
          return Effect.sync(() => call.destroy())
        })
  )
