/** Latency of deltas in concurrent turns at a constant rate. */
import { Console, Effect, Schedule } from "effect"
import { BenchFailed } from "../BenchFailed.ts"
import { Histogram } from "../load/Histogram.ts"
import { processorSeconds, residentBytes } from "../Process.ts"
import { scratch } from "../Stores.ts"
import * as Clients from "./Clients.ts"
import { launch, type Processors } from "./Gateway.ts"
import * as Platform from "./Platform.ts"

/** The load. */
export interface Load {
  readonly clients: number
  /** Clients with a turn in progress. */
  readonly turns: number
  /** Deltas per second of each turn. */
  readonly rate: number
  readonly seconds: number
  readonly warmUpSeconds: number
  readonly processors: Processors
  readonly transport: Clients.Transport
  /** By what the agents speak. */
  readonly agents: "platform" | "AG-UI"
}

/** The results. */
export interface Streamed {
  readonly load: Load
  /** Milliseconds from the sending of a delta by the platform to its arrival at the client. */
  readonly p50: number
  readonly p99: number
  readonly p999: number
  readonly max: number
  /** All deltas sent and received, including the warm-up. */
  readonly sent: number
  readonly received: number
  readonly faults: ReadonlyArray<string>
  /** Deltas received per second of the measurement. */
  readonly perSecond: number
  readonly cpuMicros: number
  readonly gatewayShare: number
  readonly generatorShare: number
  /** The largest delay of the load generator, in milliseconds. */
  readonly lateness: number
  readonly residentMiB: number
}

/** Maximum number of seconds to wait for deltas in flight at the end. */
const drainSeconds = 60

/** Polls until a condition holds. Returns whether it did. */
const comesTrue = (holds: () => boolean, seconds: number): Effect.Effect<boolean> =>
  Effect.sync(holds).pipe(
    Effect.repeat(Schedule.spaced("50 millis").pipe(Schedule.untilInput((is: boolean) => is))),
    Effect.timeoutTo({ duration: `${seconds} seconds`, onSuccess: () => true, onTimeout: () => false })
  )

/** Runs one load on a new gateway. */
export const run = (load: Load) =>
  Effect.gen(function* () {
    const { agents, clients: count, processors, rate, seconds, transport, turns, warmUpSeconds } = load
    yield* Console.error(
      `${count} clients by ${transport}, ${turns} turns at ${rate}/s, gateway on ${processors}, ${agents} …`
    )
    const platform = yield* Platform.make
    const address = agents === "AG-UI" ? { AGENT_URL: platform.agentUrl } : { AGENT_PLATFORM_URL: platform.url }
    const gateway = yield* launch(address, processors, { directory: yield* scratch })
    let histogram: Histogram | undefined
    const onDelta = (sentAt: number) => histogram?.record(performance.now() - sentAt)
    const clients = yield* Clients.make({
      url: gateway.url,
      count,
      withSessions: true,
      transport,
      listener: { onDelta }
    })
    const { tally } = clients
    yield* clients.begin(turns)
    if (!(yield* comesTrue(() => platform.turns() === turns, 30))) {
      return yield* new BenchFailed({ reason: `${platform.turns()} of ${turns} turns have started` })
    }
    const measured = yield* Effect.scoped(
      Effect.gen(function* () {
        yield* platform.speak(rate)
        yield* Effect.sleep(`${warmUpSeconds} seconds`)
        platform.lateness()
        const before = { deltas: tally.deltas, gateway: yield* processorSeconds(gateway.pid), own: process.cpuUsage() }
        const started = performance.now()
        const times = new Histogram()
        histogram = times
        yield* Effect.sleep(`${seconds} seconds`)
        histogram = undefined
        const taken = (performance.now() - started) / 1000
        const used = (yield* processorSeconds(gateway.pid)) - before.gateway
        const own = process.cpuUsage(before.own)
        const arrived = tally.deltas - before.deltas
        return {
          p50: times.quantile(0.5),
          p99: times.quantile(0.99),
          p999: times.quantile(0.999),
          max: times.quantile(1),
          perSecond: arrived / taken,
          cpuMicros: (used / arrived) * 1e6,
          gatewayShare: used / taken,
          generatorShare: (own.user + own.system) / 1e6 / taken,
          lateness: platform.lateness(),
          residentMiB: (yield* residentBytes(gateway.pid)) / 2 ** 20
        }
      })
    )
    yield* platform.finish
    yield* comesTrue(() => tally.ended === turns, drainSeconds)
    const missing = turns - tally.ended
    const result: Streamed = {
      load,
      ...measured,
      sent: platform.deltas(),
      received: tally.deltas,
      faults: [...tally.faults, ...(missing === 0 ? [] : [`${missing} turns have not ended at the clients`])]
    }
    return result
  }).pipe(Effect.scoped)
