/** The conformance suite of `SessionEvents`, for all backends. */
import { describe, expect, it } from "@effect/vitest"
import {
  type Context,
  Duration,
  Effect,
  Exit,
  FastCheck as fc,
  type Layer,
  Option,
  Runtime,
  TestClock,
  type Utils
} from "effect"
import {
  type ActiveQuery,
  type Activity,
  type Append,
  pageCharacters,
  type Retention,
  SessionEvents
} from "../../src/Gateway/SessionEvents.ts"
import { times } from "../Scale.ts"

type Port = Context.Tag.Service<SessionEvents>

type Make = (retention: Retention) => Layer.Layer<SessionEvents, unknown>

const small: Retention = { events: 10, bytes: 1000 }
const ample: Retention = { events: 10_000, bytes: 64 * 1024 * 1024 }
const numRuns = times(30)

const idle: Activity = { running: false, waiting: false, failed: false }

/** What `open` returns of a session without events, in addition to its history. */
const quiet = { activity: idle, lastEventAt: null }

const newest = { before: { at: Number.MAX_SAFE_INTEGER, session: "" } }

const appendTo = (session: string, after: number, texts: ReadonlyArray<string>, rest: Partial<Append> = {}) =>
  Effect.flatMap(SessionEvents, events =>
    events.append({ session, epoch: "e1", after, timestamp: 0, texts, recoveryState: null, ...rest })
  )

const readAll = (session: string, after = 0, limit = 1000) =>
  Effect.flatMap(SessionEvents, events => Effect.flatten(events.read(session, after, limit)))

const historyOf = (session: string) => Effect.flatMap(SessionEvents, events => Effect.flatten(events.find(session)))

export const sessionEventsSuite = (name: string, make: Make) => {
  const test = (
    name: string,
    body: (events: Port) => Generator<Utils.YieldWrap<Effect.Effect<unknown, unknown, SessionEvents>>, void>,
    retention: Retention = ample
  ) =>
    it.effect(name, () =>
      Effect.gen(function* () {
        yield* body(yield* SessionEvents)
      }).pipe(Effect.provide(make(retention)))
    )

  describe(name, () => {
    test("a history begins once, with the first epoch", function* (events) {
      expect(yield* events.find("t/s")).toEqual(Option.none())
      expect(yield* events.read("t/s", 0, 10)).toEqual(Option.none())
      const begun = { epoch: "e1", headSeq: 0, trimmedSeq: 0, recoveryState: null }
      expect(yield* events.open("t/s", "e1")).toEqual({ ...begun, ...quiet })
      expect(yield* events.open("t/s", "e2")).toEqual({ ...begun, ...quiet })
      expect(yield* historyOf("t/s")).toEqual(begun)
    })

    test("events are read as they were stored, from any position and in pages", function* (events) {
      yield* events.open("t/s", "e1")
      yield* appendTo("t/s", 0, ['{"a":"ä😀\\u0000"}', "{}"])
      yield* appendTo("t/s", 2, ["3", "4", "5"], { recoveryState: "here" })
      const page = yield* readAll("t/s", 1, 2)
      expect(page.events).toEqual([
        { seq: 2, text: "{}" },
        { seq: 3, text: "3" }
      ])
      expect(page.history).toEqual({ epoch: "e1", headSeq: 5, trimmedSeq: 0, recoveryState: "here" })
      expect((yield* readAll("t/s")).events.map(({ text }) => text)).toEqual([
        '{"a":"ä😀\\u0000"}',
        "{}",
        "3",
        "4",
        "5"
      ])
      expect((yield* readAll("t/s", 5)).events).toEqual([])
      expect((yield* readAll("t/s", 99)).events).toEqual([])
    })

    test("a page is limited in characters, and has at least one event", function* (events) {
      yield* events.open("t/s", "e1")
      const large = "x".repeat(pageCharacters)
      yield* appendTo("t/s", 0, [large, "small", large])
      expect((yield* readAll("t/s")).events.map(({ seq }) => seq)).toEqual([1])
      expect((yield* readAll("t/s", 1)).events.map(({ seq }) => seq)).toEqual([2, 3])
    })

    test("a receipt is stored with its append, replaces an earlier one with its id, and can be revoked", function* (events) {
      const find = (session: string, id = "c1") => events.receipt(session, id)
      const receipt = { id: "c1", digest: "d1", turnId: "t1" }
      expect(yield* find("t/s")).toEqual(Option.none())
      yield* events.open("t/s", "e1")
      yield* events.open("t/other", "e1")
      yield* appendTo("t/s", 0, ["1"], { receipt })
      yield* appendTo("t/other", 0, ["1"], { receipt: { ...receipt, digest: "other" } })
      expect(yield* find("t/s")).toEqual(Option.some(receipt))
      expect(yield* find("t/s", "C1")).toEqual(Option.none())
      // With a wrong sequence number it is not stored either.
      yield* Effect.flip(appendTo("t/s", 0, ["2"], { receipt: { ...receipt, digest: "lost" } }))
      expect(yield* find("t/s")).toEqual(Option.some(receipt))
      yield* appendTo("t/s", 1, [], { receipt: { ...receipt, digest: "d2", turnId: null } })
      expect(yield* find("t/s")).toEqual(Option.some({ ...receipt, digest: "d2", turnId: null }))
      yield* appendTo("t/s", 1, ["2"], { revoked: "c1", receipt: { ...receipt, id: "c2" } })
      yield* appendTo("t/s", 2, [], { revoked: "unknown" })
      expect(yield* find("t/s")).toEqual(Option.none())
      expect(yield* find("t/s", "c2")).toEqual(Option.some({ ...receipt, id: "c2" }))
      expect(yield* find("t/other")).toMatchObject(Option.some({ digest: "other" }))
      yield* events.remove("t/other")
      yield* events.open("t/other", "e2")
      expect(yield* find("t/other")).toEqual(Option.none())
    })

    test(
      "a receipt is removed with the event that was the newest when it was stored",
      function* (events) {
        const ids = ["c0", "c1", "c2"]
        const left = Effect.map(
          Effect.forEach(ids, id => events.receipt("t/s", id)),
          found => ids.filter((_, index) => Option.isSome(found[index]!))
        )
        yield* events.open("t/s", "e1")
        for (const [seq, id] of ids.entries()) {
          const receipt = { id, digest: "d", turnId: null }
          yield* appendTo("t/s", seq, [`${seq}`], { receipt, timestamp: seq < 2 ? 0 : 60_000 })
        }
        expect(yield* left).toEqual(ids)
        // Ten events are kept.
        const more = Array.from({ length: 8 }, (_, i) => `more ${i}`)
        yield* appendTo("t/s", 3, more, { timestamp: 60_000 })
        expect(yield* left).toEqual(["c1", "c2"])
        yield* TestClock.setTime(100_000)
        expect(yield* events.trim(Duration.seconds(50))).toBe(1)
        expect(yield* left).toEqual(["c2"])
      },
      small
    )

    test("an append at the wrong position stores nothing, and of two at once one is stored", function* (events) {
      expect(yield* Effect.flip(appendTo("t/s", 0, ["1"]))).toMatchObject({ _tag: "OutOfStep", headSeq: null })
      yield* events.open("t/s", "e1")
      yield* appendTo("t/s", 0, ["1"], { recoveryState: "one" })
      expect(yield* Effect.flip(appendTo("t/s", 0, ["1"]))).toMatchObject({ _tag: "OutOfStep", headSeq: 1 })
      expect(yield* Effect.flip(appendTo("t/s", 2, ["3"]))).toMatchObject({ _tag: "OutOfStep", headSeq: 1 })
      expect(yield* Effect.flip(appendTo("t/s", 1, ["2"], { epoch: "e2" }))).toMatchObject({ _tag: "OutOfStep" })
      expect((yield* readAll("t/s")).events).toEqual([{ seq: 1, text: "1" }])
      expect((yield* historyOf("t/s")).recoveryState).toBe("one")
      // Of two at once one is stored.
      const exits = yield* Effect.all(
        ["a", "b"].map(text => Effect.exit(appendTo("t/s", 1, [text]))),
        { concurrency: "unbounded" }
      )
      expect(exits.filter(Exit.isSuccess)).toHaveLength(1)
      expect((yield* readAll("t/s")).events).toHaveLength(2)
    })

    test("sessions do not see each other's events, whatever their names", function* (events) {
      const names = ["t/s", "t/s2", "t2/s", "T/s", "t/%", "t/ä"]
      yield* Effect.forEach(names, session => events.open(session, "e1"))
      yield* Effect.forEach(names, session => appendTo(session, 0, [session, session]), {
        concurrency: "unbounded"
      })
      for (const session of names) {
        expect((yield* readAll(session)).events.map(({ text }) => text)).toEqual([session, session])
      }
    })

    test(
      "the number of events is bounded, and numbering continues",
      function* (events) {
        yield* events.open("t/s", "e1")
        for (let after = 0; after < 24; after += 3) yield* appendTo("t/s", after, ["a", "b", "c"])
        const { events: left, history } = yield* readAll("t/s")
        expect(left.map(({ seq }) => seq)).toEqual([15, 16, 17, 18, 19, 20, 21, 22, 23, 24])
        expect(history).toMatchObject({ headSeq: 24, trimmedSeq: 14 })
        yield* appendTo(
          "t/s",
          24,
          Array.from({ length: 25 }, () => "x")
        )
        expect((yield* historyOf("t/s")).trimmedSeq).toBe(39)
      },
      small
    )

    test(
      "the bytes of a history are bounded, and the newest event is always kept",
      function* (events) {
        yield* events.open("t/s", "e1")
        yield* appendTo("t/s", 0, ["ä".repeat(200), "ä".repeat(200), "ä".repeat(200)])
        expect((yield* readAll("t/s")).events.map(({ seq }) => seq)).toEqual([2, 3])
        yield* appendTo("t/s", 3, ["x".repeat(5000)])
        expect((yield* readAll("t/s")).events.map(({ seq }) => seq)).toEqual([4])
        yield* appendTo("t/s", 4, ["y"])
        expect((yield* readAll("t/s")).events.map(({ seq }) => seq)).toEqual([5])
      },
      small
    )

    test("events past an age are removed, and the head of the history is kept", function* (events) {
      yield* events.open("t/s", "e1")
      yield* events.open("t/r", "e1")
      yield* appendTo("t/s", 0, ["old", "old"], { timestamp: 0 })
      yield* appendTo("t/r", 0, ["old"], { timestamp: 0 })
      yield* appendTo("t/s", 2, ["newer"], { timestamp: 60_000 })
      yield* TestClock.setTime(90_000)
      expect(yield* events.trim(Duration.minutes(1))).toBe(3)
      expect((yield* readAll("t/s")).events).toEqual([{ seq: 3, text: "newer" }])
      expect(yield* historyOf("t/r")).toMatchObject({ headSeq: 1, trimmedSeq: 1 })
      expect(yield* events.trim(Duration.minutes(1))).toBe(0)
      yield* appendTo("t/r", 1, ["next"], { timestamp: 90_000 })
      expect((yield* readAll("t/r")).events).toEqual([{ seq: 2, text: "next" }])
    })

    test("a history whose epoch is changed keeps all else, and continues in the new epoch alone", function* (events) {
      const receipt = { id: "c1", digest: "d1", turnId: "t1" }
      yield* events.open("t/s", "e1")
      yield* appendTo("t/s", 0, ["1", "2"], { recoveryState: "x", receipt })
      const renewed = { ...quiet, epoch: "e2", headSeq: 2, trimmedSeq: 0, recoveryState: "x", lastEventAt: 0 }
      expect(yield* events.renewEpoch("t/s", "e2")).toEqual(renewed)
      expect(yield* events.open("t/s", "e3")).toEqual(renewed)
      expect(yield* events.receipt("t/s", "c1")).toEqual(Option.some(receipt))
      expect(yield* Effect.flip(appendTo("t/s", 2, ["3"]))).toMatchObject({ _tag: "OutOfStep", headSeq: 2 })
      yield* appendTo("t/s", 2, ["3"], { epoch: "e2" })
      expect((yield* readAll("t/s")).events.map(({ text }) => text)).toEqual(["1", "2", "3"])
      const begun = { epoch: "e2", headSeq: 0, trimmedSeq: 0, recoveryState: null }
      expect(yield* events.renewEpoch("t/new", "e2")).toEqual({ ...begun, ...quiet })
      expect(yield* readAll("t/new")).toEqual({ events: [], history: begun })
    })

    test("the newest checkpoint of a history is kept, however large it is and in whatever order they come", function* (events) {
      const save = (seq: number, text: string, epoch = "e1") => events.saveCheckpoint("t/s", { epoch, seq, text })
      const kept = Effect.map(events.checkpoint("t/s"), Option.getOrUndefined)
      yield* save(0, "too early")
      expect(yield* kept).toBe(undefined)
      yield* events.open("t/s", "e1")
      yield* events.open("t/other", "e1")
      yield* appendTo("t/s", 0, ["1", "2", "3"])
      expect(yield* kept).toBe(undefined)
      yield* save(4, "beyond the end")
      yield* save(1, "of another epoch", "e0")
      expect(yield* kept).toBe(undefined)
      const text = JSON.stringify({ text: "ä😀\u0000\ud800" })
      yield* save(2, text)
      expect(yield* kept).toEqual({ epoch: "e1", seq: 2, text })
      yield* save(1, "older")
      expect(yield* kept).toMatchObject({ seq: 2, text })
      yield* save(2, "once more")
      yield* save(3, "newer")
      expect(yield* kept).toEqual({ epoch: "e1", seq: 3, text: "newer" })
      expect(yield* events.checkpoint("t/other")).toEqual(Option.none())
      expect(yield* historyOf("t/s")).toMatchObject({ epoch: "e1", headSeq: 3 })
      yield* events.renewEpoch("t/s", "e2")
      yield* save(3, "of the old epoch")
      expect(yield* kept).not.toMatchObject({ text: "of the old epoch" })
      yield* save(1, "of the new epoch", "e2")
      expect(yield* kept).toEqual({ epoch: "e2", seq: 1, text: "of the new epoch" })
      yield* Effect.forEach([0, 3, 1, 2], seq => save(seq, `up to ${seq}`, "e2"), { concurrency: "unbounded" })
      expect(yield* kept).toMatchObject({ seq: 3, text: "up to 3" })
      const large = "ä".repeat(4 * pageCharacters)
      yield* events.saveCheckpoint("t/other", { epoch: "e1", seq: 0, text: large })
      expect((yield* Effect.flatten(events.checkpoint("t/other"))).text === large).toBe(true)
    })

    test("launch configurations are kept, replaced and removed with all of their session, not with its history", function* (events) {
      const none = { environment: null, deployment: null }
      const whole = { environment: '{"A":"ä😀"}', deployment: '{"large":"x"}' }
      expect(yield* events.configuration("t/s")).toEqual(none)
      yield* events.configure("t/s", whole)
      yield* events.configure("t/half", { environment: null, deployment: "null" })
      yield* events.configure("t/none", none)
      yield* events.open("t/none", "e1")
      yield* appendTo("t/none", 0, ["1"])
      yield* events.open("t/s", "e1")
      yield* events.renewEpoch("t/s", "e2")
      expect(yield* events.configuration("t/s")).toEqual(whole)
      expect(yield* events.summaries(["t/none", "t/s", "t/half", "t/unknown"])).toEqual([
        { headSeq: 1, ...idle, lastEventAt: 0, hasEnvironment: false, hasDeployment: false },
        { headSeq: 0, ...idle, lastEventAt: null, hasEnvironment: true, hasDeployment: true },
        { headSeq: null, ...idle, lastEventAt: null, hasEnvironment: false, hasDeployment: true },
        { headSeq: null, ...idle, lastEventAt: null, hasEnvironment: false, hasDeployment: false }
      ])
      yield* events.configure("t/s", { ...whole, deployment: null })
      expect(yield* events.configuration("t/s")).toEqual({ ...whole, deployment: null })
      yield* events.configure("t/half", none)
      expect(yield* events.configuration("t/half")).toEqual(none)
      yield* events.open("t/s", "e2")
      yield* appendTo("t/s", 0, ["1", "2"], { epoch: "e2", recoveryState: "x" })
      yield* events.saveCheckpoint("t/s", { epoch: "e2", seq: 2, text: "{}" })
      yield* events.remove("t/s")
      yield* events.remove("t/s")
      expect(yield* events.configuration("t/s")).toEqual(none)
      expect(yield* events.find("t/s")).toEqual(Option.none())
      expect(yield* events.unfinished).toEqual([])
      expect(yield* events.checkpoint("t/s")).toEqual(Option.none())
      yield* events.open("t/s", "e3")
      expect((yield* readAll("t/s")).events).toEqual([])
      expect(yield* events.checkpoint("t/s")).toEqual(Option.none())
    })

    test("sessions are listed by their activity, in both directions and by what they do", function* (events) {
      const at = (session: string, after: number, timestamp: number, activity?: Activity) =>
        appendTo(session, after, ["{}"], { timestamp, activity: activity && { ...activity, at: timestamp } })
      const list = (query: Partial<ActiveQuery> = {}) =>
        Effect.map(events.active({ tenant: "t", limit: 10, from: newest, filter: {}, ...query }), found =>
          found.map(({ at, session }) => `${session} ${at}`)
        )
      yield* TestClock.setTime(1000)
      for (const session of ["t/a", "t/b"]) yield* events.create(session, "e1")
      yield* events.create("t/a", "e1", 7000)
      yield* events.create("old/a", "e1", 7)
      expect(yield* list({ tenant: "old" })).toEqual(["old/a 7"])
      for (const session of ["t/a", "t/b", "t/c", "t/d", "t2/a"]) yield* events.open(session, "e1")
      // By its name if the time is the same. The greatest name counts as the newest.
      expect(yield* list()).toEqual(["t/d 1000", "t/c 1000", "t/b 1000", "t/a 1000"])
      yield* at("t/a", 0, 5000, { ...idle, running: true, waiting: true })
      yield* at("t/b", 0, 4000, { ...idle, failed: true })
      // Neither changes the order: no activity, and one from before the last.
      yield* at("t/c", 0, 9000)
      yield* at("t/d", 0, 500, { ...idle, running: true })
      expect(yield* list()).toEqual(["t/a 5000", "t/b 4000", "t/d 1000", "t/c 1000"])
      expect(yield* list({ limit: 2 })).toEqual(["t/a 5000", "t/b 4000"])
      expect(yield* list({ from: { before: { at: 1000, session: "t/d" } } })).toEqual(["t/c 1000"])
      const after = { at: 1000, session: "t/c" }
      expect(yield* list({ from: { after } })).toEqual(["t/d 1000", "t/b 4000", "t/a 5000"])
      expect(yield* list({ from: { after }, filter: { running: true } })).toEqual(["t/d 1000", "t/a 5000"])
      expect(yield* list({ filter: { running: true, waiting: false } })).toEqual(["t/d 1000"])
      expect(yield* list({ filter: { failed: false } })).toEqual(["t/a 5000", "t/d 1000", "t/c 1000"])
      expect(yield* list({ filter: { waiting: true, failed: true } })).toEqual([])
      const counted = (limit: number, tenant?: string) =>
        Effect.map(events.counts(limit, tenant), counts =>
          counts
            .map(({ count, failed, running, tenant, waiting }) => [tenant, count, running, waiting, failed].join(" "))
            .sort()
        )
      const ofTenant = ["t 1 false false false", "t 1 false false true", "t 1 true false false", "t 1 true true false"]
      expect(yield* counted(100, "t")).toEqual(ofTenant)
      const ofOthers = ["old 1 false false false", "t2 1 false false false"]
      expect(yield* counted(100)).toEqual([...ofOthers, ...ofTenant].sort())
      expect((yield* events.counts(3)).reduce((sum, { count }) => sum + count, 0)).toBe(3)
      expect(yield* counted(100, "none")).toEqual([])
      yield* events.remove("t/a")
      expect(yield* list()).toEqual(["t/b 4000", "t/d 1000", "t/c 1000"])
      const [b, c] = yield* events.summaries(["t/b", "t/c"])
      expect(b).toMatchObject({ failed: true, running: false, waiting: false, lastEventAt: 4000 })
      expect(c).toMatchObject({ ...idle, lastEventAt: 9000 })
      expect(yield* events.open("t/b", "e1")).toMatchObject({ activity: { ...idle, failed: true }, lastEventAt: 4000 })
    })

    test("without its events, a history has ended when its session was last active", function* (events) {
      yield* events.open("t/s", "e1")
      yield* appendTo("t/s", 0, ["1"], { timestamp: 1000, activity: { ...idle, failed: true, at: 1000 } })
      yield* appendTo("t/s", 1, ["2"], { timestamp: 2000 })
      expect(yield* events.summaries(["t/s"])).toMatchObject([{ lastEventAt: 2000 }])
      yield* TestClock.setTime(90_000)
      yield* events.trim(Duration.minutes(1))
      expect(yield* events.summaries(["t/s"])).toMatchObject([{ failed: true, lastEventAt: 1000 }])
    })

    test("sessions of which anything is stored are listed in pages, each once", function* (events) {
      const configuration = { environment: "{}", deployment: null }
      for (const session of ["l/b", "l/d", "l/a"]) yield* events.open(session, "e1")
      for (const session of ["l/d", "l/c"]) yield* events.configure(session, configuration)
      yield* events.open("l/e", "e1")
      yield* events.remove("l/e")
      const all = yield* events.sessions("", 10)
      expect(all).toEqual(["l/a", "l/b", "l/c", "l/d"])
      const pages = yield* Effect.forEach(["", "l/b", "l/d"], after => events.sessions(after, 2))
      expect(pages).toEqual([["l/a", "l/b"], ["l/c", "l/d"], []])
    })

    test("recovery states list the sessions that were not closed", function* (events) {
      for (const session of ["t/a", "t/b", "t/c"]) yield* events.open(session, "e1")
      yield* appendTo("t/a", 0, [], { recoveryState: "a" })
      yield* appendTo("t/b", 0, ["1"], { recoveryState: "b" })
      expect(yield* events.unfinished).toEqual([
        { session: "t/a", recoveryState: "a" },
        { session: "t/b", recoveryState: "b" }
      ])
      yield* appendTo("t/a", 0, [], { recoveryState: null })
      expect(yield* events.unfinished).toEqual([{ session: "t/b", recoveryState: "b" }])
    })

    test(
      "histories are dense and end at their heads after any appends",
      function* (events) {
        const sessions = ["a", "b"]
        const appends = fc.array(fc.tuple(fc.constantFrom(...sessions), fc.array(fc.string(), { maxLength: 8 })), {
          maxLength: 12
        })
        let run = 0
        const holds = (steps: ReadonlyArray<readonly [string, ReadonlyArray<string>]>) =>
          Effect.gen(function* () {
            const prefix = `t${run++}/`
            const model: Record<string, Array<string>> = { a: [], b: [] }
            for (const session of sessions) yield* events.open(prefix + session, "e1")
            for (const [session, texts] of steps) {
              yield* appendTo(prefix + session, model[session]!.length, texts)
              model[session]!.push(...texts)
            }
            for (const [session, texts] of Object.entries(model)) {
              const { events: left, history } = yield* readAll(prefix + session)
              expect(history.headSeq).toBe(texts.length)
              expect(history.trimmedSeq).toBe(texts.length - left.length)
              expect(left).toEqual(texts.map((text, index) => ({ seq: index + 1, text })).slice(history.trimmedSeq))
              expect(left.length).toBeGreaterThanOrEqual(Math.min(1, texts.length))
            }
          })
        const runtime = yield* Effect.runtime<SessionEvents>()
        const property = fc.asyncProperty(appends, steps => Runtime.runPromise(runtime)(holds(steps)))
        yield* Effect.promise(() => fc.assert(property, { numRuns }))
      },
      small
    )
  })
}
