import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { keys } from "../../Harness.ts"
import {
  at,
  batch,
  bearer,
  type Check,
  call,
  end,
  expectError,
  items,
  listAt,
  put,
  remove,
  Site,
  segment,
  space
} from "./Fixture.ts"
import { once, webSocket } from "./Followers.ts"

interface Entry {
  readonly key: string
  readonly value: unknown
  readonly version: number
}

interface Change {
  readonly seq: number
  readonly op: string
  readonly key: string
  readonly value: unknown
  readonly version: number
}

/** What a follower has received. */
interface Received {
  readonly initial: Array<Entry>
  /** The position at the end of the entries. */
  end: { readonly lastSeq: number; readonly epoch: string } | undefined
  readonly changes: Array<Change>
}

const nothing = (): Received => ({ initial: [], end: undefined, changes: [] })

/** The entries that result from what was received. */
const folded = ({ changes, initial }: Received): ReadonlyMap<string, readonly [unknown, number]> => {
  const entries = new Map(initial.map(({ key, value, version }) => [key, [value, version] as const]))
  for (const { key, op, value, version } of changes) {
    if (op === "set") entries.set(key, [value, version])
    else entries.delete(key)
  }
  return entries
}

/**
 * Follows by Server-Sent Events until `isDone`. Returns what was received, and the id of the last event that had one.
 */
const byEvents = (query: string, isDone: (received: Received) => boolean, lastEventId?: string) =>
  Effect.flatMap(Site, ({ url }) =>
    Effect.promise(async signal => {
      const headers = {
        authorization: bearer(keys.read),
        ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId })
      }
      const answer = await fetch(`${url}/api/v1/changes/stream?${query}`, { headers, signal })
      expect(answer.status).toBe(200)
      const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
      const received = nothing()
      let rest = ""
      let id = ""
      while (!isDone(received)) {
        const blocks = (rest + ((await reader.read()).value ?? "")).split("\n\n")
        rest = blocks.pop()!
        for (const block of blocks) {
          const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1]
          const [type = "message", data = ""] = [field("event"), field("data") ?? ""]
          // No event before the end has an id: a client that is interrupted starts again.
          if (received.end === undefined && type !== "initial-end" && lastEventId === undefined)
            expect(field("id")).toBeUndefined()
          id = field("id") ?? id
          if (data === "") continue
          if (type === "initial") received.initial.push(JSON.parse(data))
          else if (type === "initial-end") received.end = JSON.parse(data)
          else received.changes.push(JSON.parse(data))
        }
      }
      await reader.cancel()
      return { received, id }
    })
  )

/** The same by WebSocket. */
const bySocket = (query: string, isDone: (received: Received) => boolean) =>
  Effect.gen(function* () {
    const received = nothing()
    const socket = yield* webSocket(query)
    socket.on("message", data => {
      const { changes, entries, epoch, lastSeq, type } = JSON.parse(String(data))
      if (type === "initial") received.initial.push(...entries)
      else if (type === "initial-end") received.end = { lastSeq, epoch }
      else if (type === "changes") received.changes.push(...changes)
      if (isDone(received)) socket.terminate()
    })
    yield* once(socket, "close")
    expect(isDone(received)).toBe(true)
    return { received }
  })

/** Followers that first receive the present entries. */
export const initial = (check: Check) => {
  for (const [name, follow] of [
    ["an event stream", byEvents],
    ["a WebSocket", bySocket]
  ] as const) {
    check(`${name} begins with the entries of a part of a namespace, in order, and then sends changes`, function* () {
      const namespace = space()
      for (const key of ["b/2", "a", "b/10", "b/1", "c"]) yield* put(namespace, key, { key })
      yield* remove(namespace, "c")
      yield* put(`${namespace}x`, "b/0", 0)
      const query = `namespace=${segment(namespace)}&prefix=b%2F&initial=1&after=999999`
      const before = yield* end
      let isInitialRead = false
      const reading = yield* Effect.fork(
        follow(query, received => {
          isInitialRead ||= received.end !== undefined
          return received.changes.length === 2
        })
      )
      yield* Effect.flatMap(
        follow(query, received => received.end !== undefined),
        ({ received }) =>
          Effect.sync(() => expect(received.initial.map(({ key }) => key)).toEqual(["b/1", "b/10", "b/2"]))
      )
      yield* Effect.repeat(Effect.sleep("1 millis"), { until: () => isInitialRead })
      yield* put(namespace, "a", 1)
      yield* put(namespace, "b/1", 1)
      yield* remove(namespace, "b/2")
      const { received } = yield* Fiber.join(reading)
      const list = yield* call("GET", `${listAt(namespace)}?prefix=b%2F`)
      expect([...folded(received).keys()].sort()).toEqual(["b/1", "b/10"])
      for (const { key, value, version } of items(list)) expect(folded(received).get(key)).toEqual([value, version])
      expect(received.end!.lastSeq).toBeGreaterThanOrEqual(before)
      expect(received.end!.epoch).toBe(list.headers["kv-epoch"])
      for (const { seq } of received.changes) expect(seq).toBeGreaterThan(received.end!.lastSeq)
    })

    check(`what ${name} sends of a large namespace that changes all the time results in the list`, function* () {
      const namespace = space()
      const fill = (value: unknown) =>
        batch(Array.from({ length: 1000 }, (_, index) => ({ op: "set", namespace, key: `k${index}`, value })))
      yield* fill("x".repeat(500))
      yield* put(namespace, "last", 0)
      const isDone = ({ changes }: Received) => changes.some(({ key, value }) => key === "last" && value === 10)
      const readers = yield* Effect.fork(
        Effect.forEach(Array.from({ length: 4 }), () => follow(`namespace=${segment(namespace)}&initial=1`, isDone), {
          concurrency: "unbounded"
        })
      )
      for (let round = 1; round <= 10; round++) {
        yield* batch([
          { op: "set", namespace, key: `k${(round * 37) % 1000}`, value: round },
          { op: "delete", namespace, key: `k${(round * 91) % 1000}` },
          { op: "set", namespace, key: `new${round}`, value: round },
          { op: "set", namespace, key: "last", value: round }
        ])
      }
      const list = items(yield* call("GET", listAt(namespace)))
      // Those that began late have seen the last value among the entries.
      const repeating = Effect.forever(Effect.delay(put(namespace, "last", 10), "50 millis"))
      for (const { received } of yield* Effect.raceFirst(Fiber.join(readers), repeating)) {
        const entries = folded(received)
        expect(received.changes.map(({ seq }) => seq)).toEqual(
          [...new Set(received.changes.map(({ seq }) => seq))].sort((a, b) => a - b)
        )
        expect(new Set(received.initial.map(({ key }) => key)).size).toBe(received.initial.length)
        expect(entries.size).toBe(list.length)
        const others = list.filter(({ key }) => key !== "last")
        expect(others.map(({ key }) => entries.get(key))).toEqual(others.map(({ value, version }) => [value, version]))
      }
    })
  }

  check("an event stream that resumes is not sent the entries again", function* () {
    const namespace = space()
    yield* put(namespace, "a", 1)
    const query = `namespace=${segment(namespace)}&initial=1`
    const first = yield* byEvents(query, received => received.end !== undefined)
    expect(first.id).toBe(`${first.received.end!.lastSeq}@${first.received.end!.epoch}`)
    yield* put(namespace, "b", 2)
    const second = yield* byEvents(query, received => received.changes.length === 1, first.id)
    expect(second.received).toMatchObject({ initial: [], end: undefined, changes: [{ key: "b" }] })
    const answer = yield* call("GET", `/api/v1/changes/stream?${query}`, { headers: { "last-event-id": "0@other" } })
    expectError(answer, 410, "list again")
  })

  check("an empty namespace has an end of its entries too, and initial=0 asks for none", function* () {
    const namespace = space()
    const query = `namespace=${segment(namespace)}`
    for (const follow of [byEvents, bySocket]) {
      const { received } = yield* follow(`${query}&initial=1`, received => received.end !== undefined)
      expect(received).toMatchObject({ initial: [], end: { lastSeq: yield* end } })
    }
    const start = yield* end
    yield* put(namespace, "a", 1)
    const { received } = yield* bySocket(`${query}&initial=0&after=${start}`, received => received.changes.length === 1)
    expect(received).toMatchObject({ initial: [], end: undefined })
  })

  check("initial requires a namespace, and is not for polls", function* () {
    for (const route of ["stream", "ws"]) {
      expectError(yield* call("GET", `/api/v1/changes/${route}?initial=1`), 400, "namespace")
      expectError(yield* call("GET", `/api/v1/changes/${route}?initial=yes&namespace=n`), 400, "initial")
      const other = `/api/v1/changes/${route}?initial=1&tenant=a&namespace=tenant:b/n`
      expectError(yield* call("GET", other), 400, "namespace", "tenant")
    }
    for (const value of ["0", "1"]) {
      expectError(yield* call("GET", `/api/v1/changes?namespace=n&initial=${value}`), 400, "initial", "stream")
    }
    expectError(yield* call("PUT", at("n", "k"), { json: {} }), 400)
  })
}
