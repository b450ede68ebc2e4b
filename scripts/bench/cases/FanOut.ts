/** Each change is sent to many WebSockets. */
import { Effect } from "effect"
import { BenchFailed } from "../BenchFailed.ts"
import type { Case } from "../Case.ts"
import { compare, type Entrant, type Work } from "../Compare.ts"
import { causeway, key, ws } from "../Contender.ts"
import { none } from "../Findings.ts"
import * as ClosedLoop from "../load/ClosedLoop.ts"
import * as Followers from "../load/Followers.ts"
import * as Random from "../load/Random.ts"
import * as Requests from "../Requests.ts"
import { ask, type Running, start } from "../Server.ts"
import { scratch } from "../Stores.ts"

const followers = 500

/** Connections that write, so that one group of writes is sent while the next is being synced. */
export const writers = 8

/** One frame at a time, as the service does. */
const publishers = 1

/** The path of a follower of new changes only. */
export const endOfLog = (running: Running): Effect.Effect<string, BenchFailed> =>
  Effect.map(ask(running, `/api/v1/changes?after=${Number.MAX_SAFE_INTEGER}`), body => {
    const { lastSeq }: { readonly lastSeq: number } = JSON.parse(body)
    return `/api/v1/changes/ws?limit=1000&after=${lastSeq}`
  })

/** Frames to many WebSockets as work. */
export const broadcasting = (
  running: Running,
  path: Effect.Effect<string, BenchFailed>,
  connections: number,
  request: () => string,
  onMessages: (messages: ReadonlyArray<string>) => void
): Entrant => ({
  name: running.name,
  pid: running.pid,
  prepare: Effect.gen(function* () {
    const all = yield* Followers.make({ port: running.port, path: yield* path, key, count: followers })
    return (seconds: number) =>
      Effect.gen(function* () {
        const before = all.messages()
        const { failures, seconds: taken } = yield* ClosedLoop.run({
          port: running.port,
          connections,
          seconds,
          request
        })
        const done = all.messages() - before
        onMessages(all.kept())
        if (done === 0) return yield* new BenchFailed({ reason: `${running.name} sends its followers nothing` })
        return { done, seconds: taken, failures } satisfies Work
      })
  })
})

/** The writes that followers receive. */
export const writing = (): (() => string) => {
  const random = Random.make(7)
  return () => {
    const entry = random(Requests.areaSize)
    return Requests.send("PUT", Requests.entryPath(entry), `{"value":${Requests.valueOf(entry)}}`)
  }
}

export const fanOut: Case = {
  name: "fan-out",
  about: `changes to ${followers} WebSockets`,
  run: Effect.gen(function* () {
    const service = yield* start(causeway, { directory: yield* scratch })
    const peer = yield* start(ws, { directory: yield* scratch })
    const write = writing()
    // The peer sends the frames that the service sent in its warm-up, which runs first.
    let frames: ReadonlyArray<string> = []
    let next = 0
    const publish = () => Requests.send("POST", "/", frames[next++ % frames.length]!)
    const comparison = yield* compare(
      { name: "fan-out", title: `changes to ${followers} WebSockets, ${writers} writers`, unit: "frames" },
      [
        broadcasting(service, endOfLog(service), writers, write, kept => {
          if (frames.length === 0) frames = kept.filter(frame => frame.includes('"changes"'))
        }),
        broadcasting(peer, Effect.succeed("/"), publishers, publish, () => {})
      ]
    )
    return { ...none, comparisons: [comparison] }
  })
}
