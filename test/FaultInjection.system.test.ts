/**
 * System calls on the data directory fail, one fault at a time, while the service starts and at each moment of a fixed
 * script. Whatever fails: the process lives (or refuses to start by a sentence), nothing that was acknowledged is
 * lost, and the service recovers automatically once the disk works again.
 *
 * `npm run test:system` draws a sample by a seed (FAULT_SEED). The soak lets each call of the script fail in turn, in a way that
 * the seed chooses; from TEST_SCALE=100 on in every way. FAULT_CASES has some alone, separated by commas, in the form in
 * which a failure names them.
 */
import { realpathSync } from "node:fs"
import { assert, layer } from "@effect/vitest"
import { Array as Arr, Effect, Option, Random } from "effect"
import * as Simulator from "../src/Simulator/Simulator.ts"
import * as Disk from "./faults/Disk.ts"
import * as Faults from "./faults/Faults.ts"
import { connect, type Moment, moments, Notes } from "./faults/Script.ts"
import { secret, token } from "./Gateway/survival/Token.ts"
import { isSoak, scale, times } from "./Scale.ts"
import * as Environment from "./service/Environment.ts"
import * as Service from "./service/Service.ts"
import { temporaryDirectory } from "./TemporaryDirectory.ts"

const seed = process.env.FAULT_SEED ?? "faults"
const only = process.env.FAULT_CASES

/** A fault and when it begins. */
interface Case {
  readonly moment: Moment | "start"
  readonly fault: Faults.Fault
}

/** `moment|kind|skip|count|outcome`: so many calls of the kind fail, after so many that succeed. */
const shown = ({ fault, moment }: Case): string =>
  [moment, fault.kind, fault.skip, fault.count, fault.outcome].join("|")

/** How long clients wait for answers after the disk has failed; only a hang may make them wait forever. */
const patience = "4 seconds"

/** How long a disk that is sound again may need: a guard against hanging, no measurement. */
const guard = "150 seconds"

/** The state that the cases share: one simulator, one directory, and the answers to clients. */
const setup = Effect.gen(function* () {
  const directory = realpathSync(yield* temporaryDirectory)
  const simulator = yield* Simulator.make({ seed, pace: "1 millis", limits: { instances: 1000, history: 100_000 } })
  const disk = yield* Disk.make(directory)
  const bearer = yield* token("acme")
  const notes = new Notes()
  const options: Service.Options = {
    directory,
    env: { AGENT_PLATFORM_URL: simulator.platformUrl, GATEWAY_JWT_SECRET: secret, LOG_LEVEL: "info", ...disk.env }
  }

  const use = <A, E, R>(
    service: Service.Running,
    of: string,
    body: (clients: Effect.Effect.Success<ReturnType<typeof connect>>) => Effect.Effect<A, E, R>
  ) =>
    Effect.gen(function* () {
      const clients = yield* connect(service, bearer, notes)
      return yield* Effect.raceFirst(
        body(clients),
        Effect.flatMap(service.ended, ended => Effect.dieMessage(`The service ended ${of}: ${JSON.stringify(ended)}`))
      )
    }).pipe(
      Effect.scoped,
      Effect.tapErrorCause(() => Effect.logInfo(`The service's log ${of}:\n${service.log().slice(-6000)}`))
    )

  const within = <A, E, R>(what: string, effect: Effect.Effect<A, E, R>) =>
    Effect.timeoutFail(effect, { duration: guard, onTimeout: () => new Error(`Not within ${guard}: ${what}`) })

  /** Waits for an effect until the disk has failed and then for as long as clients do, however slow the machine is. */
  const patiently = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.raceFirst(
      Effect.asSome(effect),
      Effect.repeat(Effect.delay(disk.injected, "20 millis"), { until: count => count > 0 }).pipe(
        Effect.zipRight(Effect.sleep(patience)),
        Effect.as(Option.none<A>())
      )
    )

  /** The script on a working disk, so that the data that its steps read exists. */
  const whole = (service: Service.Running) =>
    use(service, "on a sound disk", clients => Effect.forEach(moments, clients.perform, { discard: true }))

  /** One fault at one moment of a running service. */
  const strike = (service: Service.Running, one: Case & { readonly moment: Moment }) =>
    use(service, shown(one), clients =>
      Effect.gen(function* () {
        yield* disk.set([Faults.ruleOf(one.fault)])
        yield* patiently(clients.perform(one.moment))
        const injected = yield* disk.injected
        yield* disk.heal
        yield* within(`a write after ${shown(one)}`, clients.recovered)
        yield* within(`a turn after ${shown(one)}`, clients.conversed)
        return injected
      })
    )

  /** A start under a fault, which may be refused by a sentence. */
  const startUnder = (one: Case) =>
    Effect.gen(function* () {
      yield* disk.set([Faults.ruleOf(one.fault)])
      const starting = yield* Service.launch(options)
      const begun = yield* patiently(Effect.either(starting.serving))
      const injected = yield* disk.injected
      yield* disk.heal
      const serving = Option.isSome(begun)
        ? begun.value
        : yield* within(`a start after ${shown(one)}`, Effect.either(starting.serving))
      if (serving._tag === "Left") {
        const { code, signal, stderr } = serving.left
        assert.deepStrictEqual({ code, signal }, { code: 1, signal: null }, `${shown(one)}: ${stderr}`)
        assert.match(stderr, /^causeway cannot start\. [^\n]*\n$/, shown(one))
        return injected
      }
      const end = (name: NodeJS.Signals) =>
        Effect.zipRight(
          Effect.sync(() => starting.signal(name)),
          starting.ended
        )
      const service = { ...starting, url: serving.right, end }
      yield* use(service, shown(one), clients =>
        Effect.zipRight(
          within(`a write after ${shown(one)}`, clients.recovered),
          within(`a turn after ${shown(one)}`, clients.conversed)
        )
      )
      yield* end("SIGKILL")
      return injected
    }).pipe(Effect.scoped)

  const judged = (service: Service.Running, of: string) =>
    use(service, of, clients =>
      Effect.map(within(`all records after ${of}`, clients.findings), found => assert.deepStrictEqual(found, [], of))
    )

  const made = (from: Disk.Counts, to: Disk.Counts) =>
    Object.fromEntries(Disk.calls.map(call => [call, to[call] - from[call]])) as Disk.Counts

  /** What each moment does on a sound disk, of a service that has been through the script before. */
  const survey = (service: Service.Running) =>
    use(service, "on a sound disk", clients =>
      Effect.forEach(moments, moment =>
        Effect.gen(function* () {
          const from = yield* disk.counts
          yield* clients.perform(moment)
          return { moment, counts: made(from, yield* disk.counts) }
        })
      )
    )

  /** What a start does in a directory that has been used. */
  const surveyStart = Effect.gen(function* () {
    const from = yield* disk.counts
    const service = yield* Service.start(options)
    const counts = made(from, yield* disk.counts)
    yield* service.end("SIGKILL")
    return [{ moment: "start" as const, counts }]
  }).pipe(Effect.scoped)

  return { judged, options, startUnder, strike, survey, surveyStart, whole }
})

/** How many calls of each kind each moment makes on a sound disk. */
type Calls = ReadonlyArray<{ readonly moment: Case["moment"]; readonly counts: Disk.Counts }>

const isRunning = (one: Case): one is Case & { readonly moment: Moment } => one.moment !== "start"

/** What can go wrong with one call. */
type Way = Pick<Faults.Fault, "count" | "kind" | "outcome">

/** The ways in which a call of this kind can go wrong: it fails once, or it and all that follow fail. */
const waysOf = (kind: Disk.Call): ReadonlyArray<Way> =>
  Faults.outcomes[kind].flatMap(
    (outcome): ReadonlyArray<Way> =>
      // What hangs holds up those that follow anyway.
      outcome === "hang"
        ? [{ kind, count: 1, outcome }]
        : [1, Number.POSITIVE_INFINITY].map(count => ({ kind, count, outcome }))
  )

const pick = <A>(items: ReadonlyArray<A>, random: Random.Random): Effect.Effect<A> =>
  Effect.map(random.nextIntBetween(0, items.length), index => items[index]!)

/** So many ways, each kind of call and outcome once at most, of calls that the moments make. */
const sample = (calls: Calls, count: number, random: Random.Random): Effect.Effect<ReadonlyArray<Case>> =>
  Effect.gen(function* () {
    const groups = Disk.calls.flatMap(kind => Object.values(Arr.groupBy(waysOf(kind), way => way.outcome)))
    const shuffled = [...(yield* random.shuffle(groups))]
    const cases: Array<Case> = []
    for (const ways of shuffled) {
      const { kind, ...way } = yield* pick(ways, random)
      const making = calls.filter(({ counts }) => counts[kind] > 0)
      const at = yield* random.next
      const fraction = yield* random.next
      const call = making[Math.floor(at * making.length)]
      if (call === undefined || cases.length === count) continue
      const skip = Math.floor(fraction * call.counts[kind])
      cases.push({ moment: call.moment, fault: { kind, skip, ...way } })
    }
    return cases
  })

/** Each call in turn, in one of its ways, or in all of them. */
const inTurn = (calls: Calls, random: Random.Random): Effect.Effect<ReadonlyArray<Case>> =>
  Effect.map(
    Effect.forEach(calls, ({ counts, moment }) =>
      Effect.forEach(Disk.calls, kind =>
        Effect.forEach(Array.from({ length: counts[kind] }), (_, skip) =>
          Effect.map(
            scale >= 100 ? Effect.succeed(waysOf(kind)) : Effect.map(pick(waysOf(kind), random), Arr.of),
            ways => ways.map((way): Case => ({ moment, fault: { skip, ...way } }))
          )
        )
      )
    ),
    cases => cases.flat(3)
  )

/** A case as `moment|kind|skip|count|outcome`, to have one alone again. */
const given = (text: string): Case => {
  const [moment, kind, skip, count, outcome] = text.split("|")
  return {
    moment: [...moments, "start" as const].find(name => name === moment)!,
    fault: {
      kind: Disk.calls.find(name => name === kind)!,
      skip: Number(skip),
      count: Number(count),
      outcome: Faults.outcomes.create.find(name => name === outcome)!
    }
  }
}

layer(Environment.layer, { excludeTestServices: true })("a service whose disk fails", it => {
  it.scoped.skipIf(!Disk.isPossible)("survives, loses no acknowledged write, and recovers", () =>
    Effect.gen(function* () {
      const random = Random.make(seed)
      const { judged, options, strike, survey, whole } = yield* setup
      const draw = (from: Calls, count: number) => (isSoak ? inTurn(from, random) : sample(from, count, random))
      const chosen = only?.split(",").map(given)

      let service = yield* Service.start(options)
      yield* whole(service)
      const running = chosen?.filter(isRunning) ?? (yield* draw(yield* survey(service), times(8))).filter(isRunning)
      yield* Effect.logInfo(`seed ${seed}: ${running.map(shown).slice(0, 100).join(",")}`)
      let injected = 0
      for (const group of Arr.chunksOf(running, 40)) {
        for (const one of group) injected += yield* strike(service, one)
        yield* judged(service, `after ${group.map(shown).join("; ")}`)
        yield* service.end("SIGKILL")
        // A new process now and then, so that what one fault leaves behind is there for the next, and is seen alone.
        if (group.at(-1) !== running.at(-1)) service = yield* Service.start(options)
      }
      yield* service.end("SIGKILL")
      const last = yield* Service.start(options)
      yield* judged(last, "after all faults of a running service")
      yield* last.end("SIGKILL")

      // In a directory with little in it: a start reads all sessions, and each of its calls takes a start of its own.
      const small = yield* setup
      const first = yield* Service.start(small.options)
      yield* small.whole(first)
      yield* first.end("SIGKILL")
      const starts = chosen?.filter(one => !isRunning(one)) ?? (yield* draw(yield* small.surveyStart, times(2)))
      yield* Effect.logInfo(`seed ${seed}: ${starts.length} starts: ${starts.map(shown).slice(0, 100).join(",")}`)
      for (const one of starts) injected += yield* small.startUnder(one)
      yield* small.judged(yield* Service.start(small.options), "after all faults of a start")
      assert.isAtLeast(injected, (starts.length + running.length) / 2)
    })
  )
})
