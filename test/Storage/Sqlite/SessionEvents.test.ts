/** What the session database overwrites. */

import { readFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import * as Sqlite from "../../../src/Storage/Sqlite/SessionEvents.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"

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
