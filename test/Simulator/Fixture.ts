import * as http from "node:http"
import { it } from "@effect/vitest"
import { Effect, Option, Schema, type Scope } from "effect"
import { WebSocket } from "ws"
import { Changes } from "../../src/Simulator/Changes.ts"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { given } from "../Given.ts"

/** Tests of a simulator, by the real clock. */
export const live = given(it.scopedLive, Simulator.make)

/** Tests of a simulator, by the test's clock. */
export const timed = given(it.scoped, Simulator.make)

/** The response to a request, complete or cut off. */
export interface Reply {
  readonly status: number
  readonly headers: http.IncomingHttpHeaders
  readonly body: Buffer
  /** The error's code if the response was cut off. */
  readonly broken: string | undefined
}

export class NoReply extends Schema.TaggedError<NoReply>()("NoReply", { code: Schema.String }) {}

interface RequestOptions {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: unknown
}

const codeOf = (error: NodeJS.ErrnoException): string => error.code ?? error.message

/** Sends one request on a connection of its own; interruption closes it. */
export const request = (url: string, { method, headers = {}, body }: RequestOptions = {}) =>
  Effect.async<Reply, NoReply>(resume => {
    const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body)
    const sent = http.request(url, {
      agent: false,
      method: method ?? (text === undefined ? "GET" : "POST"),
      headers: { ...(text === undefined ? {} : { "content-type": "application/json" }), ...headers }
    })
    sent.once("error", error => resume(Effect.fail(new NoReply({ code: codeOf(error) }))))
    sent.once("response", response => {
      const chunks: Array<Buffer> = []
      const done = (broken: string | undefined) =>
        resume(
          Effect.succeed({
            status: response.statusCode!,
            headers: response.headers,
            body: Buffer.concat(chunks),
            broken
          })
        )
      response.on("data", (chunk: Buffer) => chunks.push(chunk))
      response.once("error", error => done(codeOf(error)))
      response.once("end", () => done(undefined))
    })
    sent.end(text)
    return Effect.sync(() => sent.destroy())
  })

/** The JSON of an answer. */
export const jsonOf = (reply: Reply): unknown => JSON.parse(reply.body.toString("utf8"))

/** The status of an answer and its JSON. */
export const outcome = (url: string, options?: RequestOptions) =>
  Effect.map(request(url, options), reply => [reply.status, jsonOf(reply)] as const)

const Created = Schema.decodeUnknown(Schema.Struct({ instanceId: Schema.String }))

/** Creates an instance and returns its id. */
export const create = (platformUrl: string, headers: Readonly<Record<string, string>> = {}) =>
  request(`${platformUrl}/api/v1/instances`, { body: { agentType: "echo" }, headers }).pipe(
    Effect.flatMap(reply => Created(jsonOf(reply))),
    Effect.map(({ instanceId }) => instanceId)
  )

/** An event as it came in; frames that are no objects come as they are, under `frame`. */
export type Event = Readonly<Record<string, unknown>>

/** A client's end of a connection to an instance. */
export interface Client {
  readonly socket: WebSocket
  readonly events: Array<Event>
  readonly send: (frame: unknown) => Effect.Effect<void>
  /** Sends a message, and waits for the event that ends its turn. */
  readonly turn: (content: string, turnId: string) => Effect.Effect<ReadonlyArray<Event>>
  /** Waits until an event of a type has come. */
  readonly until: (type: string, matches?: (event: Event) => boolean) => Effect.Effect<Event>
  /** Waits for the end, and returns the close code. */
  readonly closed: Effect.Effect<number>
}

const parse = (data: unknown, isBinary: boolean): Event => {
  if (isBinary) return { frame: "binary" }
  const text = String(data)
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return { ...value }
  } catch {
    // Kept as it is, below.
  }
  return { frame: text }
}

const endings = ["turn.completed", "turn.failed", "turn.cancelled"]

/** Connects to an instance until the scope closes; fails with the status of a refused handshake. */
export const connect = (
  platformUrl: string,
  instanceId: string,
  query = "",
  headers: Readonly<Record<string, string>> = {}
): Effect.Effect<Client, NoReply, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.async<Client, NoReply>(resume => {
      const url = `${platformUrl.replace("http", "ws")}/api/v1/instances/${instanceId}/connect${query}`
      const socket = new WebSocket(url, { headers })
      const changes = new Changes()
      const events: Array<Event> = []
      let code: number | undefined
      socket.on("message", (data, isBinary) => {
        events.push(parse(data, isBinary))
        changes.notify()
      })
      socket.on("close", closeCode => {
        code = closeCode
        changes.notify()
      })
      socket.once("unexpected-response", (_, response) => {
        resume(Effect.fail(new NoReply({ code: String(response.statusCode) })))
        response.destroy()
      })
      socket.on("error", error => resume(Effect.fail(new NoReply({ code: codeOf(error) }))))
      const send = (frame: unknown) =>
        Effect.sync(() => socket.send(typeof frame === "string" ? frame : JSON.stringify(frame)))
      const find = (wanted: ReadonlyArray<unknown>, matches: (event: Event) => boolean) => {
        // Each event is looked at once only.
        let looked = 0
        return changes.until(() => {
          while (looked < events.length) {
            const event = events[looked++]!
            if (wanted.includes(event.type) && matches(event)) return Option.some(event)
          }
          return Option.none()
        })
      }
      socket.once("open", () =>
        resume(
          Effect.succeed({
            socket,
            events,
            send,
            turn: (content, turnId) =>
              Effect.zipRight(
                send({ type: "message", content, turnId }),
                Effect.map(
                  find(endings, event => event.turnId === turnId),
                  () => events.filter(event => event.turnId === turnId)
                )
              ),
            until: (type, matches = () => true) => find([type], matches),
            closed: changes.until(() => Option.fromNullable(code))
          })
        )
      )
      return Effect.sync(() => socket.terminate())
    }),
    ({ socket }) => Effect.sync(() => socket.terminate())
  )

/** The types of events, in order. */
export const types = (events: ReadonlyArray<Event>) => events.map(event => event.type)

/** The text of a turn, from its deltas. */
export const textOf = (events: ReadonlyArray<Event>): string =>
  events
    .filter(event => event.type === "message.delta")
    .map(event => String(event.delta))
    .join("")
