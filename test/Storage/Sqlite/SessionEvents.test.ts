/** The session database: writes that are bugs of their callers, and what it overwrites. */

import { readFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { type Append, SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import * as Sqlite from "../../../src/Storage/Sqlite/SessionEvents.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"

const append = (session: string, text: string): Append => ({
  session,
  epoch: "e",
  after: 0,
  timestamp: 1,
  texts: [text],
  recoveryState: null
})

/** What no caller can make by its type: it can neither be bound nor be sent to a thread. */
const broken: object = { recoveryState: () => {} }

describe("a write of a session that is a bug of its caller", () => {
  for (const writer of ["inline", "thread"] as const) {
    it.scopedLive(`is not stored, and later writes succeed, written ${writer}`, () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* Effect.gen(function* () {
          const events = yield* SessionEvents
          for (const session of ["t/a", "t/b"]) yield* events.open(session, "e")
          const failure = yield* Effect.flip(events.append({ ...append("t/a", "1"), ...broken }))
          expect(failure._tag).toBe("StoreUnavailable")
          for (const session of ["t/a", "t/b"]) yield* events.append(append(session, "2"))
          const page = yield* Effect.flatten(events.read("t/a", 0, 10))
          expect(page.events).toEqual([{ seq: 1, text: "2" }])
        }).pipe(
          Effect.provide(Sqlite.layer({ directory, writer })),
          Effect.provide(Logger.remove(Logger.defaultLogger))
        )
      })
    )
  }
})

const marker = "MARK-OF-WHAT-IS-REMOVED."

/** A launch configuration with the marker everywhere, in one page or in many. */
const marked = (times: number) => ({ environment: marker.repeat(times), deployment: marker.repeat(times) })

describe("launch configurations in the session database", () => {
  it.scoped("leave nothing in the bytes of the file once they are replaced or removed", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const run = <A, E>(effect: Effect.Effect<A, E, SessionEvents>) =>
        Effect.provide(effect, Sqlite.layer({ directory, writer: "inline" }))
      const isMarked = () => readFileSync(join(directory, "sessions.db")).includes(marker)
      const sessions = ["t/replaced", "t/removed", "t/emptied"]
      yield* run(
        Effect.gen(function* () {
          const { configure } = yield* SessionEvents
          for (const session of sessions) {
            yield* configure(session, marked(3))
            yield* configure(`${session}-large`, marked(2000))
          }
        })
      )
      expect(isMarked()).toBe(true)
      yield* run(
        Effect.gen(function* () {
          const { configure, remove } = yield* SessionEvents
          for (const size of ["", "-large"]) {
            yield* configure(`t/replaced${size}`, { environment: "{}", deployment: null })
            yield* configure(`t/emptied${size}`, { environment: null, deployment: null })
            yield* remove(`t/removed${size}`)
          }
        })
      )
      expect(isMarked()).toBe(false)
    })
  )
})
