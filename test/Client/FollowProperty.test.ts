import * as fc from "fast-check"
import { expect, it } from "vitest"
import type { TransportName } from "../../src/Client/Client.ts"
import { type CursorPage, followNamespace, type LogReader, Snapshot } from "../../src/Client/Follow.ts"
import type { Change, Entry, FollowEvent } from "../../src/Client/Model.ts"
import { times } from "../Scale.ts"
import { Gathered, ManualClock, passUntil, randomBy, range, turns, withService } from "./Harness.ts"

const disturbances = ["cut", "silence", "restart", "refuse", "admit"] as const

/** The events during the test. */
type Step =
  | { readonly type: "write"; readonly count: number; readonly bytes: number }
  | { readonly type: (typeof disturbances)[number] }
  | { readonly type: "wait"; readonly turns: number }

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      type: fc.constant("write" as const),
      count: fc.integer({ min: 1, max: 30 }),
      bytes: fc.constantFrom(1, 1000, 40_000)
    })
  },
  {
    weight: 3,
    arbitrary: fc.record({ type: fc.constantFrom(...disturbances) })
  },
  { weight: 2, arbitrary: fc.record({ type: fc.constant("wait" as const), turns: fc.integer({ min: 0, max: 200 }) }) }
)

const transports: ReadonlyArray<ReadonlyArray<TransportName> | undefined> = [
  undefined,
  ["webSocket"],
  ["serverSentEvents"],
  ["longPolling"]
]

const namespace = "tenant:acme/settings"

/** How far a follower of a namespace has come. */
const positionOf = ({ events }: Gathered): number | undefined => {
  const last = events.at(-1)
  return last?.type === "change" ? last.change.seq : last?.type === "synced" ? last.lastSeq : undefined
}

it("followers see exactly the log, whatever is cut when", { timeout: 600_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 1, maxLength: 15 }),
      fc.constantFrom(...transports),
      fc.nat({ max: 30 }),
      fc.nat(),
      (steps, only, pace, seed) =>
        withService(async ({ connect, direct, proxy, service }) => {
          const ending = new AbortController()
          const { signal } = ending
          const clock = new ManualClock(randomBy(seed))
          const client = connect({ clock, ...(only && { transports: only }) })
          let written = 0
          const write = async (count: number, bytes = 1) => {
            const value = "v".repeat(bytes)
            await direct().batch(
              range(1, count).map(() => ({ op: "set", namespace, key: `k${written++ % 7}`, value: { written, value } }))
            )
          }
          await write(5)
          const log = new Gathered(
            (async function* () {
              for await (const event of client.follow({ after: 0, signal })) {
                await turns(pace)
                yield event
              }
            })()
          )
          const part = new Gathered(client.follow({ namespace, signal }))
          for (const step of steps) {
            if (step.type === "write") await write(step.count, step.bytes)
            else if (step.type === "wait") await turns(step.turns)
            else if (step.type === "cut") proxy.cut()
            else if (step.type === "silence") proxy.silence()
            else if (step.type === "refuse") proxy.refusesWebSockets = true
            else if (step.type === "admit") proxy.refusesWebSockets = false
            else {
              await service.stop()
              await service.start()
            }
          }
          await write(1)
          await passUntil(clock, () => log.seqs.length >= written && positionOf(part) === written)
          expect(log.seqs).toEqual(range(1, written))
          // The existing entries, and then each later change.
          const synced = part.events.findIndex(({ type }) => type === "synced")
          const position = part.events[synced]
          expect(part.types.filter(type => type !== "change" && type !== "entry")).toEqual(["synced"])
          expect(part.seqs).toEqual(range(position?.type === "synced" ? position.lastSeq + 1 : 0, written))
          ending.abort()
          await Promise.all([log.done, part.done])
        })
    ),
    { numRuns: times(12), endOnFailure: true }
  )
})

const page = (epoch: string, key: string, cursor?: string): CursorPage => ({
  items: [{ namespace, key, value: epoch, version: 1, updatedBy: "a", updatedAt: 0, expiresAt: null }],
  ...{ lastSeq: 9, epoch, cursor }
})

it("entries of two logs are not taken for one list", async () => {
  const pages = [page("old", "a", "1"), page("new", "b"), page("new", "a", "1"), page("new", "b")]
  const cursors: Array<string | undefined> = []
  const reader = {
    retrying: <A>(work: () => Promise<A>) => work(),
    pause: () => Promise.resolve(),
    pages: async function* () {}
  } as unknown as LogReader
  const seen: Array<FollowEvent> = []
  for await (const event of followNamespace(reader, { tenant: undefined, namespace }, cursor => {
    cursors.push(cursor)
    return Promise.resolve(pages.shift()!)
  })) {
    seen.push(event)
    if (event.type === "synced") break
  }
  expect(cursors).toEqual([undefined, "1", undefined, "1"])
  expect(seen.map(event => (event.type === "entry" ? `${event.entry.key} ${event.entry.value}` : event.type))).toEqual([
    "a old",
    "reset",
    "a new",
    "b new",
    "synced"
  ])
  expect(seen.at(-1)).toEqual({ type: "synced", lastSeq: 9, epoch: "new" })
})

it("a change of the last key of a page is new after that page, and of the next key after its own", () => {
  const snapshot = new Snapshot()
  for (const [key, lastSeq] of [
    ["a", 1],
    ["c", 3]
  ] as const) {
    snapshot.add({ items: [{ key } as Entry], lastSeq, epoch: "e" })
  }
  const isNew = (key: string) => snapshot.isNew({ key, seq: 2 } as Change)
  expect(["a", "b", "c"].map(isNew)).toEqual([true, false, false])
})
