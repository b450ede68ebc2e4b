/**
 * An agent that is reached by AG-UI over HTTP: one address. Its runs are never repeated, unless no connection could be
 * opened.
 */
import * as Headers from "@effect/platform/Headers"
import type * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import { Chunk, Deferred, Duration, Effect, Either, Exit, Option, Redacted, type Scope, type Stream } from "effect"
import { continuingHeader } from "../../AgUi/Protocol.ts"
import type { JsonObject } from "../../base/Json/Parsing.ts"
import * as Supervision from "../../base/Supervision.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import { isLarge, turnOf } from "../../base/Time/PacedWork.ts"
import { durations } from "../AgentPlatform/InstanceConnection.ts"
import type { ArrivingFrames } from "../AgentPlatform/PlatformSocket.ts"
import { fromFrame, OversizedFrame, type PlatformEvent } from "../PlatformEvent.ts"
import { UpstreamFailure } from "../Resilience/UpstreamFailure.ts"
import type { Part } from "../Resilience.ts"
import * as Resilience from "../Resilience.ts"
import * as ServerSentEvents from "../ServerSentEvents.ts"
import * as UpstreamHttp from "../UpstreamHttp.ts"

/** `RunAgentInput` of AG-UI. */
export type RunInput = JsonObject & { readonly threadId: string; readonly runId: string }

/** The time limits of a run. */
export interface Times {
  /** From the request to the header of the answer. */
  readonly connect: Duration.DurationInput
  /** Between two events. */
  readonly silence: Duration.DurationInput
  /** From the answer to its end. */
  readonly run: Duration.DurationInput
}

export const defaultTimes: Times = { connect: "60 seconds", silence: "4 minutes", run: "1 hour" }

/** What an agent sends. A failure is in the place of data that is no event. */
export type Received = PlatformEvent | OversizedFrame | UpstreamFailure

/** Who follows a run. It fails if the run has failed, which counts for the breakers. */
export interface Follower {
  /** Called when the header of the answer has arrived. */
  readonly begin: () => void
  /** Takes events as they arrive. Returns whether others may follow; otherwise the request is ended. */
  readonly take: (received: ReadonlyArray<Received>) => Effect.Effect<boolean, UpstreamFailure>
  /** After the last event. */
  readonly end: Effect.Effect<void, UpstreamFailure>
}

/** The address of an agent, and what is sent there with each request. */
export interface Options {
  /** Name in metrics. */
  readonly upstream: string
  readonly url: string
  readonly apiKey: Option.Option<Redacted.Redacted>
  readonly headers: Readonly<Record<string, Redacted.Redacted>>
  readonly times: Times
  /** Characters of an event. */
  readonly eventBytes: number
  readonly arriving: ArrivingFrames
}

/** Requests a run. The header of the answer proves to the breakers that the agent works. */
export type Agent = (input: RunInput, breakers: Part, follower: Follower) => Effect.Effect<void, UpstreamFailure>

const operation = "run"

export const failure = (reason: UpstreamFailure["reason"], message: string): UpstreamFailure =>
  new UpstreamFailure({ operation, reason, message })

/** How often the silence of an agent is looked at, at least. */
const watchMillis = 2000

const tooMuch = failure("too_large", "The agents have sent too much that does not end, and this one the most")

const decode = (
  { data, isCut, isTooLong }: ServerSentEvents.ServerSentEvent,
  most: number
): ReadonlyArray<Received> => {
  if (isTooLong === true) return [new OversizedFrame(`has more than ${most} characters`)]
  // Some servers end their streams as those of models end.
  if (data === "[DONE]") return []
  const decoded = fromFrame(data)
  if (Either.isRight(decoded)) return [decoded.right]
  const problem = decoded.left
  if (typeof problem !== "string") return [problem]
  return isCut === true ? [] : [failure("malformed", `The agent sent an event that ${problem}`)]
}

/** Follows a run to its end. Fails when it takes too long, or when the agent is silent for too long. */
const follow = (
  body: Stream.Stream<Uint8Array, UpstreamFailure>,
  follower: Follower,
  { arriving, eventBytes, times }: Options
): Effect.Effect<void, UpstreamFailure> =>
  Effect.gen(function* () {
    const abandoned = yield* Deferred.make<never, UpstreamFailure>()
    const count = (characters: number) =>
      arriving.record(abandoned, characters, () => Deferred.unsafeDone(abandoned, tooMuch))
    /** When the newest event has arrived, in monotonic milliseconds; none while it waits for the session. */
    const clock = yield* Effect.clock
    let silentSince: number | undefined = Monotonic.unsafeMillis(clock)

    const read = Effect.gen(function* () {
      const pull = yield* ServerSentEvents.pull(body, eventBytes, count)
      for (;;) {
        const sent = yield* pull
        if (Chunk.isEmpty(sent)) continue
        silentSince = undefined
        const received: Array<Received> = []
        for (const event of sent) {
          if (isLarge(event.data.length)) yield* turnOf(event.data.length)
          received.push(...decode(event, eventBytes))
        }
        if (!(yield* follower.take(received))) return
        silentSince = Monotonic.unsafeMillis(clock)
      }
    }).pipe(
      Effect.scoped,
      Effect.catchAll(end => (end instanceof UpstreamFailure ? end : Option.getOrElse(end, () => follower.end)))
    )
    const watch = Effect.gen(function* () {
      for (;;) {
        const now = yield* Monotonic.millis
        const left = (silentSince ?? now) + Duration.toMillis(times.silence) - now
        if (left <= 0)
          return yield* failure("timeout", `The agent has sent nothing for ${Monotonic.words(times.silence)}`)
        yield* Effect.sleep(Math.min(Math.ceil(left), watchMillis))
      }
    })
    yield* Effect.raceFirst(read, Effect.raceFirst(watch, Deferred.await(abandoned))).pipe(
      Effect.ensuring(Effect.sync(() => count(0))),
      Effect.timeoutFail({
        duration: times.run,
        onTimeout: () => failure("timeout", `The run took more than ${Monotonic.words(times.run)}`)
      })
    )
  })

/** How long a run of another gateway may take to stop. */
const stopTimeout = "2 seconds"

/** Runs of an agent, with the metrics, the retries and the breaker of its address. */
export const make = (client: HttpClient.HttpClient, options: Options): Effect.Effect<Agent, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { apiKey, times, upstream, url } = options
    const http = UpstreamHttp.make(client, { service: "agent", baseUrl: "", apiKey })
    const calls = yield* Resilience.make({ upstream, durations, operations: [operation] })
    const secrets = Object.entries(options.headers).map(([name, value]) => [name, Redacted.value(value)] as const)
    const names = secrets.map(([name]) => name)
    // Those of the run end it before.
    const limit = Duration.times(Duration.sum(Duration.decode(times.connect), Duration.decode(times.run)), 2)

    const open = (input: RunInput) => {
      const request = HttpClientRequest.post(url).pipe(
        HttpClientRequest.setHeaders(secrets),
        // The official encoder answers protobuf to those who accept it.
        HttpClientRequest.accept("text/event-stream"),
        HttpClientRequest.bodyUnsafeJson(input)
      )
      return Effect.timeoutFail(http.openStream(operation, request), {
        duration: times.connect,
        onTimeout: () => failure("timeout", `No answer of the agent within ${Monotonic.words(times.connect)}`)
      })
    }

    /** Stops a run of another gateway, whose path is below that of the agent. */
    const stop = ({ runId, threadId }: RunInput) => {
      const address = new URL(url)
      address.pathname = `${address.pathname.replace(/\/$/, "")}/${threadId}/runs/${runId}`
      const request = HttpClientRequest.setHeaders(HttpClientRequest.del(address.href), secrets)
      return Supervision.within(stopTimeout, Effect.ignore(http.done("stop", request)))
    }

    return (input, part, follower) => {
      let isAnswered = false
      const policy: Resilience.Policy = {
        ...{ operation, part, tryTimeout: limit, timeout: limit },
        repeatable: ({ isUnreached }) => isUnreached === true && !isAnswered
      }
      const attempt = (answered: Effect.Effect<void>) =>
        Effect.gen(function* () {
          const { body, headers, type } = yield* open(input)
          if (type !== "text/event-stream") {
            return yield* failure("malformed", "The agent's answer is not a stream of Server-Sent Events")
          }
          // A run of another gateway continues without its client.
          if (headers[continuingHeader] !== undefined) {
            yield* Effect.addFinalizer(exit => (Exit.isSuccess(exit) ? Effect.void : stop(input)))
          }
          isAnswered = true
          follower.begin()
          yield* answered
          return yield* follow(body, follower, options)
        }).pipe(Effect.scoped)
      return Effect.locallyWith(calls.call(policy, attempt), Headers.currentRedactedNames, all => [...all, ...names])
    }
  })
