import { renameSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Either, Logger, LogLevel, type Scope } from "effect"
import * as TestClock from "effect/TestClock"
import * as Supervision from "../../src/base/Supervision.ts"
import { StoreUnavailable } from "../../src/Kv/Store.ts"
import * as GroupCommit from "../../src/Storage/Commit/GroupCommit.ts"
import * as SessionCommit from "../../src/Storage/Commit/SessionCommit.ts"
import * as Sqlite from "../../src/Storage/Sqlite.ts"
import type { Steps } from "../suites/Steps.ts"
import { put } from "../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

/** Registers a test with its log lines, one for each message, with the reason if there is one. */
const logged = (title: string, body: (lines: ReadonlyArray<string>) => Steps<Scope.Scope>): void =>
  it.scoped(title, () => {
    const lines: Array<string> = []
    const recorder = Logger.make(({ logLevel, message, annotations }) => {
      const reason = [...annotations].find(([name]) => name === "reason")
      lines.push(`${logLevel.label} ${message}${reason === undefined ? "" : ` (${reason[1]})`}`)
    })
    return Effect.provide(
      Effect.gen(() => body(lines)),
      Logger.replace(Logger.defaultLogger, recorder)
    )
  })

const failure = (reason: string) => Cause.fail(new StoreUnavailable({ reason }))

describe("an outage", () => {
  logged("is logged once, with its first reason, and so is its end", function* (lines) {
    const outage = Supervision.outage("writing")
    yield* outage.over
    yield* outage.failed(failure("the disk is full"))
    yield* outage.failed(failure("the disk is fuller"))
    yield* outage.over
    yield* outage.over
    expect(lines).toEqual(["WARN writing fails until the store is back (the disk is full)", "INFO writing works again"])
  })

  logged("in which some operations succeed does not end before all do", function* (lines) {
    const outage = Supervision.outage("writing")
    for (let second = 0; second < 60; second++) {
      yield* outage.failed(failure("full"))
      yield* outage.over
      yield* TestClock.adjust("1 second")
    }
    // At first it looked like two.
    const start = "WARN writing fails until the store is back (full)"
    const lasting = [start, "INFO writing works again", start]
    expect(lines).toEqual(lasting)
    yield* TestClock.adjust("9 seconds")
    yield* outage.over
    expect(lines).toEqual([...lasting, "INFO writing works again"])
  })

  logged("logs defects as errors, and does not log interruptions", function* (lines) {
    const outage = Supervision.outage("writing")
    yield* outage.failed(yield* Effect.flip(Effect.sandbox(Effect.interrupt)))
    yield* outage.failed(failure("full"))
    yield* outage.failed(Cause.die("a bug"))
    yield* outage.failed(Cause.die("a bug"))
    expect(lines).toEqual(["WARN writing fails until the store is back (full)", "ERROR writing met a defect"])
  })

  logged("of a group, of one write in it, and of a hanging commit is logged", function* (lines) {
    const hung = yield* Deferred.make<void>()
    const { submit } = yield* GroupCommit.make<string, string, StoreUnavailable>({
      commit: ([write = ""]) => {
        if (write === "hangs") return Effect.as(Deferred.await(hung), [Either.right(write)])
        const reason = new StoreUnavailable({ reason: `${write} fails` })
        if (write === "group") return reason
        return Effect.succeed([write === "one" ? Either.left(reason) : Either.right(write)])
      },
      weigh: () => ({ operations: 1, bytes: 1 }),
      outage: Supervision.outage("writing")
    })
    for (const write of ["group", "fine", "one", "fine"]) {
      yield* Effect.exit(submit(write))
      yield* TestClock.adjust("10 seconds")
    }
    const fiber = yield* Effect.fork(Effect.exit(submit("hangs")))
    yield* TestClock.adjust(0)
    yield* TestClock.adjust("2 seconds")
    yield* fiber.await
    expect(lines).toEqual([
      "WARN writing fails until the store is back (group fails)",
      "INFO writing works again",
      "WARN writing fails until the store is back (one fails)",
      "INFO writing works again",
      "WARN writing fails until the store is back (a commit takes longer than 1800 ms)"
    ])
    yield* Deferred.succeed(hung, undefined)
    yield* TestClock.adjust(0)
    expect(lines.slice(5)).toEqual(["INFO writing works again"])
  })

  it.scoped("of session histories: a defect fails their writes as an unavailable store does, and is one error", () => {
    const causes: Array<string> = []
    const recorder = Logger.make(({ cause, logLevel }) => {
      if (LogLevel.greaterThanEqual(logLevel, LogLevel.Error)) causes.push(String(Cause.squash(cause)))
    })
    return Effect.gen(function* () {
      const { submit } = yield* SessionCommit.make({ commit: () => Effect.die(new Error("a row has no state")) })
      const refused = yield* Effect.flip(submit({ op: "remove", session: "s1" }))
      expect(refused).toEqual(new StoreUnavailable({ reason: "Error: a row has no state" }))
      expect(causes).toEqual(["Error: a row has no state"])
    }).pipe(Effect.provide(Logger.replace(Logger.defaultLogger, recorder)))
  })

  logged("of the store is logged when its file is gone, and when it is back", function* (lines) {
    const directory = yield* temporaryDirectory
    const file = join(directory, "kv.db")
    yield* Effect.gen(function* () {
      renameSync(file, `${file}.away`)
      for (let attempt = 0; attempt < 3; attempt++) yield* Effect.exit(put("n", "a", 1))
      renameSync(`${file}.away`, file)
      yield* put("n", "a", 1)
    }).pipe(Effect.provide(Sqlite.layer({ directory, writer: "inline" })))
    expect(lines).toEqual([
      `WARN writing fails until the store is back (${file} is missing)`,
      "INFO writing works again"
    ])
  })
})
