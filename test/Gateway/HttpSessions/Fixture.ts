/** Requests to sessions over HTTP. */
import http from "node:http"
import { expect } from "@effect/vitest"
import { Effect, Option, type Scope } from "effect"
import type { Event, Session } from "../../../src/Gateway/Protocol.ts"
import { Changes } from "../../../src/Simulator/Changes.ts"

export interface Asked {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Sent as JSON, or as it is if it is text. */
  readonly body?: unknown
}

/** What the bodies of answers have. */
interface Json {
  readonly session: Session
  readonly sessions: ReadonlyArray<Session>
  readonly cursor?: string
  readonly turnId?: string
  readonly error?: string
}

export interface Answered {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** The body as JSON: an object, or events. */
  readonly json: Json
  readonly events: ReadonlyArray<Event>
}

/** Sends a request and reads its answer. */
export const ask = (url: string, { body, headers = {}, method = "GET" }: Asked = {}): Effect.Effect<Answered> =>
  Effect.promise(async signal => {
    const response = await fetch(url, {
      method,
      headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      body: body === undefined ? null : typeof body === "string" ? body : JSON.stringify(body),
      signal
    })
    const text = await response.text()
    const isJson = response.headers.get("content-type")?.includes("json") === true && text !== ""
    const json = isJson ? JSON.parse(text) : undefined
    const events = Array.isArray(json) ? json : []
    return { status: response.status, headers: response.headers, text, json, events }
  })

export const post = (url: string, body?: unknown, headers: Asked["headers"] = {}) =>
  ask(url, { method: "POST", headers, ...(body === undefined ? {} : { body }) })

/** Creates a session. */
export const create = (base: string, fields: object = {}, headers: Asked["headers"] = {}): Effect.Effect<Session> =>
  Effect.map(post(base, { agentType: "echo", ...fields }, headers), ({ json, status, text }) => {
    expect([status, text]).toEqual([201, expect.anything()])
    return json.session
  })

/** The members of an answer that say what happened. */
export const outcome = ({ json, status }: Answered) => ({ status, error: json?.error })

/** Polls until a session has events that match, and returns all. */
export const eventsUntil = (
  base: string,
  id: string,
  matches: (event: Event) => boolean,
  headers: Asked["headers"] = {}
): Effect.Effect<ReadonlyArray<Event>> =>
  Effect.gen(function* () {
    const events: Array<Event> = []
    let offset = "-1"
    for (;;) {
      const url = `${base}/${id}/events?live=long-poll&offset=${encodeURIComponent(offset)}`
      const { events: received, headers: answered, status, text } = yield* ask(url, { headers })
      if (status !== 200 && status !== 204) throw new Error(`${status}: ${text}`)
      events.push(...received)
      offset = answered.get("stream-next-offset")!
      if (events.some(matches)) return events
    }
  })

/** An answer that is read as it arrives. */
export interface Reading {
  readonly status: number
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  readonly text: () => string
  readonly until: (matches: (text: string) => boolean) => Effect.Effect<void>
  /** Whether the answer has come whole, once it has ended. */
  readonly isWhole: Effect.Effect<boolean>
  /** Stops reading. */
  readonly pause: () => void
  readonly resume: () => void
}

/** Reads an answer until the scope closes. With a body it is that of a POST. */
export const open = (
  url: string,
  headers: Readonly<Record<string, string>> = {},
  body?: object
): Effect.Effect<Reading, never, Scope.Scope> =>
  Effect.gen(function* () {
    const changes = new Changes()
    let text = ""
    let isWhole: boolean | undefined
    const request = yield* Effect.acquireRelease(
      // A connection of its own, which nothing else waits for.
      Effect.sync(() =>
        body === undefined
          ? http.get(url, { headers, agent: false })
          : http
              .request(url, {
                ...{ method: "POST", agent: false },
                headers: { ...headers, "content-type": "application/json" }
              })
              .end(JSON.stringify(body))
      ),
      request => Effect.sync(() => request.destroy())
    )
    const response = yield* Effect.async<http.IncomingMessage>(resume => {
      request.once("response", response => resume(Effect.succeed(response)))
      request.on("error", () => {})
    })
    response.setEncoding("utf8")
    response.on("data", (chunk: string) => {
      text += chunk
      changes.notify()
    })
    response.on("error", () => {})
    response.on("close", () => {
      isWhole = response.complete
      changes.notify()
    })
    return {
      status: response.statusCode!,
      headers: response.headers,
      text: () => text,
      until: matches =>
        changes.until(() => {
          if (matches(text)) return Option.some(undefined)
          if (isWhole !== undefined) throw new Error(`The answer has ended: ${text}`)
          return Option.none()
        }),
      isWhole: changes.until(() => Option.fromNullable(isWhole)),
      pause: () => response.pause(),
      resume: () => response.resume()
    }
  })

/** The control events of a stream. */
export const controlsOf = (text: string): ReadonlyArray<Readonly<Record<string, unknown>>> =>
  [...text.matchAll(/^event: control\ndata: (.*)$/gm)].map(([, json]) => JSON.parse(json!))
