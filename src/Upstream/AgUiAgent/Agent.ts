/**
 * An agent that is reached by AG-UI over HTTP: one address. Its runs are never repeated, unless no connection could be
 * opened.
 */
import * as Headers from "@effect/platform/Headers"
import type * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import { Deferred, Duration, Effect, ExecutionStrategy, Exit, Option, Redacted, Scope, Stream } from "effect"
import { continuingHeader, type Message } from "../../AgUi/Protocol.ts"
import * as Supervision from "../../base/Supervision.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import { fromFrame, OversizedFrame, type PlatformEvent } from "../PlatformEvent.ts"
import { type ArrivingFrames, isLarge, turnOf } from "../PlatformSocket.ts"
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

/** The data of an event that is no event. The text is the predicate of a sentence. */
export class Malformed {
  constructor(readonly problem: string) {}
}

/** What an agent sends. */
export type Received = PlatformEvent | OversizedFrame | Malformed

/** The answer to a request for a run. */
export interface OpenRun {
  /** The next events, at least one. Fails with none at the end of the stream. */
  readonly next: Effect.Effect<ReadonlyArray<Received>, Option.Option<UpstreamFailure>>
  /** Called when the run has ended. Otherwise it is stopped with the scope, which for most agents is the end of the request. */
  readonly settle: () => void
  /** Fails when the answer is given up, because the agents have sent too much that does not end. */
  readonly abandoned: Effect.Effect<never, UpstreamFailure>
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

/** An agent. */
export interface Agent {
  /** Sends a request for a run, whose end is that of the scope. Succeeds when the first events have arrived. */
  readonly run: (input: RunInput, breakers: Part) => Effect.Effect<OpenRun, UpstreamFailure, Scope.Scope>
}

const operation = "run"

const service = "agent"

const failure = (reason: UpstreamFailure["reason"], message: string): UpstreamFailure =>
  new UpstreamFailure({ operation, reason, message })

/** Agents time their first tokens by this histogram, like the platform its calls. */
const durations = Resilience.durations(
  "agent_platform_request_duration_ms",
  "Requests to the agent platform, in milliseconds"
)

/** Reads the events of one answer. */
class Body {
  private readonly decoder = new TextDecoder()
  private readonly events: ServerSentEvents.Reader

  constructor(private readonly options: Pick<Options, "arriving" | "eventBytes">) {
    this.events = ServerSentEvents.reader(options.eventBytes, true)
  }

  /** The data of the events that a piece completes. */
  push(bytes: Uint8Array): ReadonlyArray<ServerSentEvents.ServerSentEvent> {
    return this.events.push(this.decoder.decode(bytes, { stream: true }))
  }

  /** Counts what has arrived of an incomplete event. Above the limit of all agents together, `abandon` is called. */
  count(abandon: () => void): void {
    this.options.arriving.record(this, this.events.unfinished(), abandon)
  }

  release(): void {
    this.options.arriving.record(this, 0, () => {})
  }

  decode({ data, isTooLong }: ServerSentEvents.ServerSentEvent): Received | undefined {
    if (isTooLong === true) return new OversizedFrame(`has more than ${this.options.eventBytes} characters`)
    // Some servers end their streams as those of models end.
    if (data === "[DONE]") return undefined
    const decoded = fromFrame(data)
    if (decoded._tag === "Right") return decoded.right
    return typeof decoded.left === "string" ? new Malformed(decoded.left) : decoded.left
  }
}

const tooMuch = failure("too_large", "The agents have sent too much that does not end, and this one the most")

/** The events in a body, as they arrive. */
const eventsIn = (
  body: Stream.Stream<Uint8Array, UpstreamFailure>,
  options: Pick<Options, "arriving" | "eventBytes">
): Effect.Effect<Omit<OpenRun, "settle">, never, Scope.Scope> =>
  Effect.gen(function* () {
    const pull = yield* Stream.toPull(body)
    const reading = new Body(options)
    yield* Effect.addFinalizer(() => Effect.sync(() => reading.release()))
    const abandoned = yield* Deferred.make<never, UpstreamFailure>()
    const abandon = () => Deferred.unsafeDone(abandoned, tooMuch)
    const next: OpenRun["next"] = Effect.gen(function* () {
      for (;;) {
        const events: Array<Received> = []
        for (const piece of yield* pull) {
          for (const sent of reading.push(piece)) {
            if (isLarge(sent.data.length)) yield* turnOf(sent.data.length)
            const event = reading.decode(sent)
            if (event !== undefined) events.push(event)
          }
        }
        reading.count(abandon)
        if (events.length > 0) return events
      }
    })
    return { next, abandoned: Deferred.await(abandoned) }
  })

const isEventStream = (contentType: string | undefined): boolean =>
  (contentType ?? "").split(";", 1)[0]!.trim().toLowerCase() === "text/event-stream"

/** How long a run of another gateway may take to stop. */
const stopTimeout = "2 seconds"

/** Stops a run of another gateway, which continues without its client. */
const stopping = (http: UpstreamHttp.UpstreamHttp, stop: HttpClientRequest.HttpClientRequest) =>
  Supervision.within(stopTimeout, Effect.ignore(http.done("stop", stop)))

/** Opens the answer to a request. `stop` is sent if another gateway has answered. */
const open = (
  http: UpstreamHttp.UpstreamHttp,
  request: HttpClientRequest.HttpClientRequest,
  stop: HttpClientRequest.HttpClientRequest,
  options: Options
) =>
  Effect.gen(function* () {
    const { connect, silence } = options.times
    const { body, headers } = yield* Effect.timeoutFail(http.openStream(operation, request), {
      duration: connect,
      onTimeout: () => failure("timeout", `No answer of the agent within ${Monotonic.words(connect)}`)
    })
    if (!isEventStream(headers["content-type"])) {
      return yield* failure("malformed", "The agent's answer is not a stream of Server-Sent Events")
    }
    let isSettled = headers[continuingHeader] === undefined
    yield* Effect.addFinalizer(() => (isSettled ? Effect.void : stopping(http, stop)))
    const settle = () => {
      isSettled = true
    }
    const { abandoned, next } = yield* eventsIn(body, options)
    // An end without events is the end of the run, and not a failure of the request.
    const first = yield* next.pipe(
      Effect.map(Effect.succeed),
      Effect.catchAll(end => (Option.isNone(end) ? Effect.succeed(Effect.fail(end)) : Effect.fail(end.value))),
      Effect.timeoutFail({
        duration: silence,
        onTimeout: () => failure("timeout", `The agent has sent no event within ${Monotonic.words(silence)}`)
      })
    )
    let isFirst = true
    const all = Effect.suspend(() => {
      if (!isFirst) return next
      isFirst = false
      return first
    })
    return { next: all, abandoned, settle } satisfies OpenRun
  })

/** Runs of an agent, with the metrics, the retries and the breaker of its address. */
export const make = (client: HttpClient.HttpClient, options: Options): Effect.Effect<Agent, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { apiKey, times, upstream, url } = options
    const http = UpstreamHttp.make(client, { service, baseUrl: url, apiKey })
    const calls = yield* Resilience.make({ upstream, durations, operations: [operation] })
    const secrets = Object.entries(options.headers).map(([name, value]) => [name, Redacted.value(value)] as const)
    const names = secrets.map(([name]) => name)
    const limit = Duration.sum(Duration.decode(times.connect), Duration.decode(times.silence))

    /** The address of a run of another gateway. */
    const stop = ({ runId, threadId }: RunInput) =>
      HttpClientRequest.setHeaders(HttpClientRequest.del(`/${threadId}/runs/${runId}`), secrets)
    const request = (input: RunInput) =>
      HttpClientRequest.post("").pipe(
        HttpClientRequest.setHeaders(secrets),
        // The official encoder answers protobuf to those who accept it.
        HttpClientRequest.accept("text/event-stream"),
        HttpClientRequest.bodyUnsafeJson(input)
      )

    return {
      run: (input, part) =>
        Effect.gen(function* () {
          const scope = yield* Effect.scope
          const attempt = Effect.gen(function* () {
            const own = yield* Scope.fork(scope, ExecutionStrategy.sequential)
            return yield* open(http, request(input), stop(input), options).pipe(
              Scope.extend(own),
              Effect.onExit(exit => (Exit.isSuccess(exit) ? Effect.void : Scope.close(own, Exit.void)))
            )
          })
          const policy: Resilience.Policy = {
            ...{ operation, part, tryTimeout: limit, timeout: limit },
            repeatable: ({ isUnreached }) => isUnreached === true
          }
          return yield* calls.call(policy, attempt)
        }).pipe(Effect.locallyWith(Headers.currentRedactedNames, all => [...all, ...names]))
    }
  })
