import { get } from "node:http"
import { describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Random } from "effect"
import { WebSocket } from "ws"
import { ChangeFeed } from "../../../src/Kv/ChangeFeed.ts"
import { times } from "../../Scale.ts"
import { type Body, layer, put, query, type Served, seqsOf, serve, untilFollowers } from "./Harness.ts"

const writers = 4
const writes = times(60)

/** Every write has three changes of one tenant. At the end each tenant gets one more, in this order. */
const endings = ["c", "b", "a"] as const
const total = writers * writes * 3 + endings.length

/** What a reader has seen, where it continues, and what it will see last. */
interface Seen {
  readonly seqs: Array<number>
  after: number
  readonly last: number
}

/** Follows for a while, and then loses or drops the connection. */
type Follow = (seen: Seen, tenant: string) => Effect.Effect<void>

const take = (seen: Seen, body: Body): void => {
  seen.seqs.push(...seqsOf(body))
  seen.after = body.lastSeq
}

const followByPoll = Effect.map(
  ChangeFeed,
  (feed): Follow =>
    (seen, tenant) =>
      Effect.gen(function* () {
        const limit = yield* Random.nextIntBetween(1, 30)
        const patience = yield* Random.nextIntBetween(0, 20)
        // Interrupted before the answer: the next poll repeats the query.
        const page = yield* Effect.timeoutOption(
          Effect.orDie(feed.poll(query(seen.after, tenant, limit), Duration.millis(10))),
          Duration.millis(patience)
        )
        if (page._tag === "None") return
        const { changes, epoch, lastSeq } = page.value
        take(seen, { changes: JSON.parse(changes) as Body["changes"], lastSeq, epoch })
      })
)

const followByEvents =
  (served: Served): Follow =>
  (seen, tenant) =>
    Effect.flatMap(Effect.all([Random.nextIntBetween(1, 60), Random.nextIntBetween(1, 30)]), ([most, limit]) =>
      Effect.async<void>(resume => {
        const path = `/stream?tenant=${tenant}&limit=${limit}`
        const request = get(
          { host: "127.0.0.1", port: served.port, path, headers: { "last-event-id": seen.after } },
          response => {
            let rest = ""
            let events = 0
            const leave = () => {
              response.removeAllListeners("data")
              request.destroy()
              resume(Effect.void)
            }
            response.on("data", (bytes: Buffer) => {
              const blocks = (rest + bytes.toString()).split("\n\n")
              rest = blocks.pop()!
              for (const block of blocks) {
                const match = /^id: (\d+)@\w+\ndata: (.*)$/.exec(block)
                if (match === null) continue
                seen.seqs.push(Number(match[1]))
                seen.after = Number(match[1])
                if (++events >= most || seen.after >= seen.last) return leave()
              }
            })
            response.on("error", () => {})
            response.on("close", () => resume(Effect.void))
          }
        )
        request.on("error", () => resume(Effect.void))
        return Effect.sync(() => request.destroy())
      })
    )

const followBySocket =
  (served: Served): Follow =>
  (seen, tenant) =>
    Effect.flatMap(
      Effect.all([Random.nextIntBetween(1, 20), Random.nextIntBetween(1, 30), Random.nextBoolean]),
      ([most, limit, polite]) =>
        Effect.async<void>(resume => {
          const search = `tenant=${tenant}&limit=${limit}&after=${seen.after}`
          const socket = new WebSocket(`ws://127.0.0.1:${served.port}/ws?${search}`)
          let messages = 0
          socket.on("message", data => {
            take(seen, JSON.parse(String(data)) as Body)
            if (++messages < most && seen.after < seen.last) return
            socket.removeAllListeners("message")
            if (polite) socket.close()
            else socket.terminate()
          })
          socket.on("error", () => {})
          socket.on("close", () => resume(Effect.void))
          return Effect.sync(() => socket.terminate())
        })
    )

const write = Effect.gen(function* () {
  for (let i = 0; i < writes; i++) {
    const tenant = yield* Random.choice(endings)
    yield* put(tenant, 1, 2, 3)
    // Writers yield, so that they race with the readers.
    if (yield* Random.nextBoolean) yield* Effect.promise(() => new Promise<void>(resolve => setImmediate(resolve)))
  }
})

describe("ChangeFeed", () => {
  it.live("readers see every change once and in order, with each protocol and despite failures", () =>
    Effect.gen(function* () {
      const served = yield* serve
      const follows = [yield* followByPoll, followByEvents(served), followBySocket(served)]
      const readers = follows.flatMap(follow =>
        (["", "a", "b"] as const).map(tenant => {
          const seen: Seen = { seqs: [], after: 0, last: tenant === "b" ? total - 1 : total }
          return { follow, seen, tenant }
        })
      )
      const written: Array<{ readonly seq: number; readonly tenantId: string }> = []
      const write_ = Effect.gen(function* () {
        yield* Effect.all(
          Array.from({ length: writers }, () => write),
          { concurrency: "unbounded" }
        )
        for (const tenant of endings) yield* put(tenant, "end")
        const feed = yield* ChangeFeed
        for (let after = 0; after < total; ) {
          const page = yield* feed.poll(query(after, "", 1000), Duration.zero)
          written.push(...(JSON.parse(page.changes) as Body["changes"]))
          after = page.lastSeq
        }
      })
      const read = readers.map(({ follow, seen, tenant }) =>
        Effect.repeat(follow(seen, tenant), { until: () => seen.after >= seen.last })
      )
      yield* Effect.all([write_, ...read], { concurrency: "unbounded" })
      expect(written.map(({ seq }) => seq)).toEqual(Array.from({ length: total }, (_, i) => i + 1))
      for (const { seen, tenant } of readers) {
        const wanted = written.filter(({ tenantId }) => tenant === "" || tenantId === tenant).map(({ seq }) => seq)
        expect(seen.seqs).toEqual(wanted)
      }
      yield* untilFollowers(0)
    }).pipe(Effect.scoped, Effect.provide(layer()))
  )
})
