/** The official client of the Durable Streams protocol, unmodified, as a reader of sessions. */
import { type FetchError, type StreamOptions, stream } from "@durable-streams/client"
import { assert } from "@effect/vitest"
import { Effect, Option } from "effect"
import type { Event } from "../../../src/Gateway/Protocol.ts"
import { Changes } from "../../../src/Simulator/Changes.ts"

/** One attempt: a failure is to be seen. */
const backoffOptions = { initialDelay: 10, maxDelay: 20, multiplier: 1, maxRetries: 0 }

type Options = Omit<StreamOptions, "url">

/** Reads all events that are stored. */
export const readAll = (url: string, options: Options = {}) =>
  Effect.promise(async () => {
    const response = await stream<Event>({ url, live: false, offset: "-1", backoffOptions, ...options })
    const { offset, upToDate } = response
    return { events: await response.json(), offset, upToDate }
  })

/** The status of a failed read. */
export const failure = (url: string, options: Options = {}) =>
  Effect.promise(() =>
    stream({ url, live: false, offset: "-1", backoffOptions, ...options }).then(
      ({ status }) => status,
      ({ status }: FetchError) => status
    )
  )

/** Follows a session until the scope closes. */
export const follow = (url: string, options: Options = {}) =>
  Effect.gen(function* () {
    const abort = yield* Effect.acquireRelease(
      Effect.sync(() => new AbortController()),
      abort => Effect.sync(() => abort.abort())
    )
    const response = yield* Effect.promise(() =>
      stream<Event>({ url, offset: "-1", signal: abort.signal, backoffOptions, ...options })
    )
    const changes = new Changes()
    const events: Array<Event> = []
    let end: "closed" | Error | undefined
    response.subscribeJson(({ items }) => {
      events.push(...items)
      changes.notify()
    })
    response.closed.then(
      () => {
        end = "closed"
        changes.notify()
      },
      (error: unknown) => {
        end = error instanceof Error ? error : new Error(String(error))
        changes.notify()
      }
    )
    return {
      events,
      offset: () => response.offset,
      isClosed: () => response.streamClosed,
      until: (matches: (event: Event) => boolean) =>
        changes.until(() => {
          if (events.some(matches)) return Option.some(undefined)
          if (end !== undefined) throw new Error(`The stream has ended: ${String(end)}`)
          return Option.none()
        }),
      ended: changes.until(() => Option.fromNullable(end))
    }
  })

/** Requires that events are numbered without a gap. */
export const isDense = (events: ReadonlyArray<Event>, first = 1) =>
  assert.deepStrictEqual(
    events.map(({ seq }) => seq),
    events.map((_, index) => first + index)
  )
