/**
 * What instances are made from: kept in the session database, taken out of old records, and asked for where it was
 * lost.
 */
import { rmSync } from "node:fs"
import { join } from "node:path"
import { describe, expect } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Option, Redacted } from "effect"
import { deploymentBytes, environmentBytes } from "../../../../src/Gateway/Protocol/Limits.ts"
import { SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import { namespaceOf } from "../../../../src/Gateway/Sessions/Session/SessionRecords.ts"
import { ChangeLog } from "../../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../../src/Kv/Store.ts"
import * as EventsInFile from "../../../../src/Storage/Sqlite/SessionEvents.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"
import { alice, bare, breathe, history, listen, make, makeSession, type Stored, storedWith } from "../../Fixture.ts"

/** As the service has it: the store first, which may have something to move to the session database. */
const inDirectory = (directory: string): Layer.Layer<Stored, unknown> =>
  EventsInFile.layer({ directory, writer: "inline" }).pipe(
    Layer.provideMerge(Sqlite.layer({ directory, writer: "inline" }))
  )

const marker = "MARK-OF-WHAT-NO-CLIENT-READS"
const environment = { PASSWORD: marker }
const secrets = { TOKEN: Redacted.make(marker) }
const deployment = { region: marker, replicas: 2 }

const asked = (simulator: { readonly state: Effect.Effect<unknown> }) =>
  Effect.map(simulator.state, state => JSON.parse(JSON.stringify(state)).instances)

describe("launch configurations", () => {
  test.scopedLive(
    "and secrets are in no record, change or event, and reach the platform after a restart",
    function* () {
      const { simulator, start, stored } = yield* make()
      const first = yield* start
      const { id } = yield* first.sessions.create(alice, { agentType: "echo", environment, deployment, secrets })
      yield* first.stop
      const { sessions } = yield* start
      yield* sessions.start(alice, id, { secrets })
      expect(yield* asked(simulator)).toMatchObject([{ environment, deployment, secretNames: ["TOKEN"] }])
      const events = yield* history((yield* listen(sessions, id)).subscription)
      const { entries } = yield* Context.get(stored, Store).list({
        namespace: namespaceOf("acme"),
        prefix: "",
        after: "",
        limit: 10
      })
      const changes = yield* Context.get(stored, ChangeLog).read({ after: 0, limit: 1000, tenant: "" })
      expect(entries).toHaveLength(1)
      expect(JSON.stringify([entries, changes, events, yield* sessions.list(alice)])).not.toContain(marker)
      yield* sessions.remove(alice, id)
      expect(yield* Context.get(stored, SessionEvents).configuration(`acme/${id}`)).toEqual({
        environment: null,
        deployment: null
      })
    }
  )

  for (const call of ["configuration", "configure"] as const) {
    test.scopedLive(
      `that are given while their session is deleted leave nothing behind (during ${call})`,
      function* () {
        const begun = yield* Effect.makeLatch(false)
        const gate = yield* Effect.makeLatch(true)
        const slow = storedWith(({ configuration, configure }) => {
          const delayed = <Args extends ReadonlyArray<unknown>, A, E>(f: (...args: Args) => Effect.Effect<A, E>) => {
            return (...args: Args) => Effect.tap(f(...args), () => Effect.zipRight(begun.open, gate.await))
          }
          return call === "configure" ? { configure: delayed(configure) } : { configuration: delayed(configuration) }
        })
        const { sessions, id } = yield* makeSession({ stored: slow, settings: { secretBytes: 1000 } })
        // It is in memory from here on.
        yield* sessions.get(alice, id)
        yield* gate.close
        yield* begun.close
        const secrets = { KEY: Redacted.make("s".repeat(800)) }
        const starting = yield* Effect.fork(Effect.flip(sessions.start(alice, id, { environment, secrets })))
        yield* begun.await
        const removing = yield* Effect.fork(sessions.remove(alice, id))
        while (Option.isSome(yield* Effect.option(sessions.get(alice, id)))) yield* breathe
        yield* gate.open
        yield* Fiber.join(removing)
        expect(yield* Fiber.join(starting)).toMatchObject({ _tag: "SessionNotFound" })
        yield* sessions.create(alice, { agentType: "echo", secrets })
      }
    )
  }

  bare("have limits, wherever they are given", function* ({ sessions, stored }) {
    const text = (bytes: number) => "ä".repeat(bytes / 2)
    const tooMuch = {
      environment: { A: text(environmentBytes) },
      secrets: {
        environment: { A: text(environmentBytes / 2) },
        secrets: { B: Redacted.make(text(environmentBytes / 2)) }
      },
      deployment: { deployment: text(deploymentBytes) }
    }
    const { id } = yield* sessions.create(alice, {
      agentType: "echo",
      environment: { A: text(environmentBytes / 2) }
    })
    for (const given of [{ environment: tooMuch.environment }, tooMuch.secrets, tooMuch.deployment]) {
      const refused = { _tag: "SessionTooLarge", message: expect.stringMatching(/ the limit is 65536$/) }
      expect(yield* Effect.flip(sessions.create(alice, { agentType: "echo", ...given }))).toMatchObject(refused)
      expect(yield* Effect.flip(sessions.start(alice, id, given))).toMatchObject(refused)
    }
    // What it has already counts too.
    const { secrets } = tooMuch.secrets
    expect(yield* Effect.flip(sessions.start(alice, id, { secrets }))).toMatchObject({ _tag: "SessionTooLarge" })
    yield* sessions.start(alice, id, { secrets, environment: {}, deployment: text(deploymentBytes - 2) })
    const kept = yield* Context.get(stored, SessionEvents).configuration(`acme/${id}`)
    expect(kept).toEqual({ environment: null, deployment: JSON.stringify(text(deploymentBytes - 2)) })
    expect((yield* sessions.list(alice)).sessions).toHaveLength(1)
  })

  test.scopedLive("are required again if they were lost, and a session without them is not started", function* () {
    const directory = yield* temporaryDirectory
    const before = yield* Effect.scoped(
      Effect.gen(function* () {
        const { start } = yield* make({ stored: inDirectory(directory) })
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, { agentType: "echo", environment, deployment })
        const plain = yield* sessions.create(alice, { agentType: "echo" })
        return { id, plain: plain.id }
      })
    )
    const { id, plain } = before
    for (const name of ["sessions.db", "sessions.db-wal"]) rmSync(join(directory, name), { force: true })
    const { simulator, start } = yield* make({ stored: inDirectory(directory) })
    const { sessions } = yield* start
    const missing = { missingConfiguration: ["environment", "deployment"] }
    const listed = (yield* sessions.list(alice)).sessions
    expect(listed.find(session => session.id === id)).toMatchObject(missing)
    expect(listed.find(session => session.id === plain)).not.toHaveProperty("missingConfiguration")
    expect(yield* sessions.get(alice, id)).toMatchObject(missing)
    const refused = {
      _tag: "SessionConflict",
      message:
        "The environment and the deployment of the session were lost with the session database. Give them again with start_session"
    }
    expect(yield* Effect.flip(sessions.start(alice, id))).toMatchObject(refused)
    expect(yield* Effect.flip(sessions.send(alice, id, "hello"))).toMatchObject(refused)
    expect(yield* Effect.flip(sessions.start(alice, id, { environment }))).toMatchObject({
      _tag: "SessionConflict",
      message: "The deployment of the session was lost with the session database. Give it again with start_session"
    })
    yield* sessions.start(alice, plain)
    yield* sessions.stop(alice, plain)
    const started = yield* sessions.start(alice, id, { deployment })
    expect(started).toMatchObject({ state: "active" })
    expect(started).not.toHaveProperty("missingConfiguration")
    expect(yield* asked(simulator)).toMatchObject([{ environment, deployment }])
  })
})
