/**
 * An agent that is reached by AG-UI over HTTP: one address. Its runs are never repeated, unless no connection could be
 * opened.
 */
import * as Headers from "@effect/platform/Headers"
import type * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import { Deferred, Duration, Effect, Either, Exit, Option, Redacted, type Scope, Stream } from "effect"
import { continuingHeader, type Message } from "../../AgUi/Protocol.ts"
import * as Supervision from "../../base/Supervision.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import { isLarge, turnOf } from "../../base/Time/PacedWork.ts"
import type { ArrivingFrames } from "../AgentPlatform/PlatformSocket.ts"
import { fromFrame, OversizedFrame, type PlatformEvent } from "../PlatformEvent.ts"
import { UpstreamFailure } from "../Resilience/UpstreamFailure.ts"
import type { Part } from "../Resilience.ts"
import * as Resilience from "../Resilience.ts"
import * as ServerSentEvents from "../ServerSentEvents.ts"
import * as UpstreamHttp from "../UpstreamHttp.ts"
import type { Resume } from "./Interrupts.ts"

/** `RunAgentInput` of AG-UI. */
export interface RunInput {
  readonly threadId: string
  readonly runId: string
  readonly state: unknown
  readonly messages: ReadonlyArray<Message | object>
  readonly tools: ReadonlyArray<unknown>
  readonly context: ReadonlyArray<unknown>
  readonly forwardedProps: unknown
  readonly resume?: ReadonlyArray<Resume>
}

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

/** The answer to a request for a run. */
export interface OpenRun {
  /** The next events, at least one. Fails with none at the end of the stream. */
  readonly next: Effect.Effect<ReadonlyArray<Received>, Option.Option<UpstreamFailure>>
  /** Fails when the answer is given up, because the agents have sent too much that does not end. */
  readonly abandoned: Effect.Effect<never, UpstreamFailure>
}

/** Follows a run to its end. One that fails or is interrupted is stopped. */
export type Follow = (run: OpenRun) => Effect.Effect<void, UpstreamFailure>

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

/**
 * An agent: it is sent a request for a run, which is followed when the header of the answer has arrived. This proves to the
 * breakers that the agent works; the end of the run counts for them too.
 */
export type Agent = (input: RunInput, breakers: Part, follow: Follow) => Effect.Effect<void, UpstreamFailure>

const operation = "run"

const service = "agent"

export const failure = (reason: UpstreamFailure["reason"], message: string): UpstreamFailure =>
  new UpstreamFailure({ operation, reason, message })

/** Agents time their runs by this histogram, like the platform its calls. */
const durations = Resilience.durations(
  "agent_platform_request_duration_ms",
  "Requests to the agent platform, in milliseconds"
)

const tooMuch = failure("too_large", "The agents have sent too much that does not end, and this one the most")

/** The events in a body, as they arrive. */
const eventsIn = (
  body: Stream.Stream<Uint8Array, UpstreamFailure>,
  { arriving, eventBytes }: Pick<Options, "arriving" | "eventBytes">
): Effect.Effect<OpenRun, never, Scope.Scope> =>
  Effect.gen(function* () {
    const pull = yield* Stream.toPull(body)
    const text = new TextDecoder()
    const reader = ServerSentEvents.reader(eventBytes, true)
    const abandoned = yield* Deferred.make<never, UpstreamFailure>()
    /** Counts what has arrived of an incomplete event. */
    const count = (characters: number) =>
      arriving.record(reader, characters, () => Deferred.unsafeDone(abandoned, tooMuch))
    yield* Effect.addFinalizer(() => Effect.sync(() => count(0)))

    const decode = ({ data, isTooLong }: ServerSentEvents.ServerSentEvent): ReadonlyArray<Received> => {
      if (isTooLong === true) return [new OversizedFrame(`has more than ${eventBytes} characters`)]
      // Some servers end their streams as those of models end.
      if (data === "[DONE]") return []
      const decoded = fromFrame(data)
      if (Either.isRight(decoded)) return [decoded.right]
      const problem = decoded.left
      return [typeof problem === "string" ? failure("malformed", `The agent sent an event that ${problem}`) : problem]
    }
    const pulled = Effect.gen(function* () {
      for (;;) {
        const events: Array<Received> = []
        for (const piece of yield* pull) {
          for (const sent of reader.push(text.decode(piece, { stream: true }))) {
            if (isLarge(sent.data.length)) yield* turnOf(sent.data.length)
            events.push(...decode(sent))
          }
        }
        count(reader.unfinished())
        if (events.length > 0) return events
      }
    })
    /** The last event of some agents lacks the empty line. */
    const atEnd = (end: Option.Option<UpstreamFailure>) => {
      const events = Option.isNone(end) ? reader.end().flatMap(decode) : []
      const whole = events.filter(event => !(event instanceof UpstreamFailure))
      return whole.length > 0 ? Effect.succeed(whole) : Effect.fail(end)
    }
    return { next: Effect.catchAll(pulled, atEnd), abandoned: Deferred.await(abandoned) }
  })

const isEventStream = (contentType: string | undefined): boolean =>
  (contentType ?? "").split(";", 1)[0]!.trim().toLowerCase() === "text/event-stream"

/** How long a run of another gateway may take to stop. */
const stopTimeout = "2 seconds"

/**
 * Opens the answer to a request. `stop` is sent if another gateway has answered, whose run continues without its client,
 * unless the scope succeeds.
 */
const open = (
  http: UpstreamHttp.UpstreamHttp,
  request: HttpClientRequest.HttpClientRequest,
  stop: HttpClientRequest.HttpClientRequest,
  options: Options
): Effect.Effect<OpenRun, UpstreamFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const { connect } = options.times
    const { body, headers } = yield* Effect.timeoutFail(http.openStream(operation, request), {
      duration: connect,
      onTimeout: () => failure("timeout", `No answer of the agent within ${Monotonic.words(connect)}`)
    })
    if (!isEventStream(headers["content-type"])) {
      return yield* failure("malformed", "The agent's answer is not a stream of Server-Sent Events")
    }
    if (headers[continuingHeader] !== undefined) {
      const stopping = Supervision.within(stopTimeout, Effect.ignore(http.done("stop", stop)))
      yield* Effect.addFinalizer(exit => (Exit.isSuccess(exit) ? Effect.void : stopping))
    }
    return yield* eventsIn(body, options)
  })

/** Runs of an agent, with the metrics, the retries and the breaker of its address. */
export const make = (client: HttpClient.HttpClient, options: Options): Effect.Effect<Agent, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { apiKey, times, upstream, url } = options
    const http = UpstreamHttp.make(client, { service, baseUrl: "", apiKey })
    const calls = yield* Resilience.make({ upstream, durations, operations: [operation] })
    const secrets = Object.entries(options.headers).map(([name, value]) => [name, Redacted.value(value)] as const)
    const names = secrets.map(([name]) => name)
    // Those of the run end it before.
    const limit = Duration.times(Duration.sum(Duration.decode(times.connect), Duration.decode(times.run)), 2)

    /** Stops a run of another gateway, whose path is below that of the agent. */
    const stop = ({ runId, threadId }: RunInput) => {
      const address = new URL(url)
      address.pathname = `${address.pathname.replace(/\/$/, "")}/${threadId}/runs/${runId}`
      return HttpClientRequest.setHeaders(HttpClientRequest.del(address.href), secrets)
    }
    const request = (input: RunInput) =>
      HttpClientRequest.post(url).pipe(
        HttpClientRequest.setHeaders(secrets),
        // The official encoder answers protobuf to those who accept it.
        HttpClientRequest.accept("text/event-stream"),
        HttpClientRequest.bodyUnsafeJson(input)
      )

    return (input, part, follow) => {
      let isAnswered = false
      const policy: Resilience.Policy = {
        ...{ operation, part, tryTimeout: limit, timeout: limit },
        repeatable: ({ isUnreached }) => isUnreached === true && !isAnswered
      }
      const attempt = (answered: Effect.Effect<void>) =>
        Effect.gen(function* () {
          const run = yield* open(http, request(input), stop(input), options)
          isAnswered = true
          yield* answered
          return yield* follow(run)
        }).pipe(Effect.scoped)
      return Effect.locallyWith(calls.call(policy, attempt), Headers.currentRedactedNames, all => [...all, ...names])
    }
  })
