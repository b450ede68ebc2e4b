/**
 * Executes requests on the node that owns their session: this one or another.
 */
import { type Context, Duration, Effect, Either, Metric, MetricLabel, Option } from "effect"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import { randomHex } from "../base/RandomHex.ts"
import * as Monotonic from "../base/Time/Monotonic.ts"
import type { StoreUnavailable } from "../Kv/Store.ts"
import { NodeLink, type NodeLinkShape } from "./Forwarding/NodeLink.ts"
import type { Answer } from "./Protocol/Answer.ts"
import { errorMeanings } from "./Protocol/Codes.ts"
import { type Call, execute, type Failure, failureOf, Refused, type RequestError } from "./Requests.ts"
import { type Peer, type ReachablePeer, SessionNodes, type SessionNodesShape } from "./SessionNodes.ts"
import { type Caller, Sessions } from "./Sessions.ts"

/** Executes a client's request on the node that owns its session. */
export type Execute = (caller: Caller, request: Call) => Effect.Effect<Answer, RequestError | Refused>

/** The delays between attempts. A session that moves to another node has no owner for a moment. */
const delays = [50, 150, 400, 900, 1500].map(millis => Duration.millis(millis))

/** After this time no further attempt starts. */
const timeout = Duration.seconds(15)

/** Maximum number of cached owners. The cache saves a query for each request. */
const maxCached = 10_000

const isReachable = (owner: Peer): owner is ReachablePeer => owner.address !== null

const unreachable = new Refused({
  code: "conflict",
  message:
    "The session belongs to another node of the service, which cannot be reached at present. " +
    "If it has stopped, another node takes over the session within 30 seconds",
  retryable: true
})

const inDoubt = new Refused({
  code: "timeout",
  message: "The node that owns the session did not answer. It is not known whether the request was carried out",
  retryable: false
})

/**
 * Whether a request may be repeated after an attempt of unknown outcome. Messages and answers are recorded under the id
 * of the command. An interrupt without a turn id could end the turn after the intended one.
 */
const isRepeatable = (request: Call): boolean => request.type !== "interrupt_turn" || request.turnId !== undefined

/** A node's answer to a request. */
type Result = Either.Either<Answer, RequestError | Refused>

const failureIn = (error: RequestError | Refused): Failure =>
  error instanceof Refused ? error.failure : failureOf(error)

/**
 * Whether a result may be returned. After an attempt of unknown outcome, a retryable refusal, such as that of a busy
 * node, does not mean that the earlier attempt was not carried out.
 */
const isFinal = (result: Result, isInDoubt: boolean): boolean => {
  if (!isInDoubt || Either.isRight(result)) return true
  const { code, retryable = errorMeanings[code].retryable } = failureIn(result.left)
  return !retryable
}

/** The result of a repeated request whose earlier attempt may have been carried out. */
const afterDoubt = (request: Call, result: Result): Result =>
  request.type === "delete_session" && Either.isLeft(result) && failureIn(result.left).code === "not_found"
    ? Either.right({ type: "session_deleted", id: request.id, sessionId: request.sessionId })
    : result

/** An attempt at another node. Without a result the request is to be repeated. */
interface Attempt {
  /** Whether the request may have been carried out without an answer. */
  readonly isInDoubt: boolean
  readonly result?: Result
}

const attempts = Metric.counter("sessions_forwarded_total", {
  description: "Requests sent to the node that owns the session, by outcome.",
  incremental: true
})

const seriesOf = (outcome: string) => Metric.taggedWithLabels(attempts, [MetricLabel.make("outcome", outcome)])

/** The attempts by outcome. */
const series = {
  answered: seriesOf("answered"),
  failed: seriesOf("failed"),
  not_owner: seriesOf("not_owner"),
  unreachable: seriesOf("unreachable"),
  refused: seriesOf("refused"),
  silent: seriesOf("silent"),
  busy: seriesOf("busy"),
  displaced: seriesOf("displaced")
}

/** The metric label of a failed attempt. */
const outcomeOf = {
  NodeUnreachable: "unreachable",
  NodeRefused: "refused",
  NodeSilent: "silent",
  SessionsBusy: "busy"
} as const

/** Executes requests of clients on the nodes that own their sessions. */
class Routing {
  /** The owners that have answered last. The oldest is evicted first. */
  private readonly owners = new Map<string, ReachablePeer>()

  constructor(
    private readonly sessions: Context.Tag.Service<Sessions>,
    private readonly nodes: SessionNodesShape,
    private readonly link: NodeLinkShape,
    private readonly tags: MetricTags.MetricTags
  ) {}

  readonly execute: Execute = (caller, request) => {
    if (!("sessionId" in request)) return execute(this.sessions, caller, request)
    const session = `${caller.tenant}/${request.sessionId}`
    const known = this.owners.get(session)
    return known === undefined
      ? Effect.catchTag(execute(this.sessions, caller, request), "SessionElsewhere", () =>
          this.forward(session, caller, request, undefined)
        )
      : this.forward(session, caller, request, known)
  }

  private count(outcome: keyof typeof series): void {
    series[outcome].unsafeUpdate(1, this.tags)
  }

  private remember(session: string, owner: ReachablePeer): void {
    this.owners.delete(session)
    this.owners.set(session, owner)
    if (this.owners.size > maxCached) this.owners.delete(this.owners.keys().next().value!)
  }

  /** One attempt at another node. */
  private send(
    session: string,
    owner: ReachablePeer,
    caller: Caller & { readonly commandId: string },
    request: Call
  ): Effect.Effect<Attempt> {
    const { node } = owner
    return Effect.map(Effect.either(this.link.send(owner, { ...caller, node, request })), sent => {
      if (Either.isLeft(sent)) {
        const { left } = sent
        this.count(outcomeOf[left._tag])
        if (left._tag === "SessionsBusy") return { isInDoubt: false, result: Either.left(left) }
        this.owners.delete(session)
        return { isInDoubt: left._tag === "NodeSilent" }
      }
      const reply = sent.right
      if (reply.is === "displaced") {
        this.count("displaced")
        return { isInDoubt: true }
      }
      if (reply.is !== "answer" && reply.is !== "failure") {
        this.count("not_owner")
        this.owners.delete(session)
        return { isInDoubt: false }
      }
      this.remember(session, owner)
      this.count(reply.is === "answer" ? "answered" : "failed")
      const result = reply.is === "answer" ? Either.right(reply.answer) : Either.left(new Refused(reply.failure))
      return { isInDoubt: false, result }
    })
  }

  /**
   * The owner of a session. After an attempt of unknown outcome, a failed query counts as no owner: its failure would
   * mean to the client that the request was not carried out.
   */
  private lookUp(session: string, isInDoubt: boolean): Effect.Effect<Peer | undefined, StoreUnavailable> {
    const found = Effect.map(this.nodes.ownerOf(session), Option.getOrUndefined)
    return isInDoubt ? Effect.orElseSucceed(found, () => undefined) : found
  }

  /** Sends the request to the current owner until one answers. */
  private forward(
    session: string,
    caller: Caller,
    request: Call,
    first: ReachablePeer | undefined
  ): Effect.Effect<Answer, RequestError | Refused> {
    return Effect.gen(this, function* () {
      const repeatable = { ...caller, commandId: `command-${yield* randomHex(4)}` }
      const startedAt = yield* Monotonic.millis
      let isInDoubt = false
      let known = first
      for (let attempt = 0; ; attempt++) {
        const owner: Peer | undefined = known ?? (yield* this.lookUp(session, isInDoubt))
        known = undefined
        if (owner !== undefined && isReachable(owner)) {
          const { isInDoubt: isLost, result }: Attempt = yield* this.send(session, owner, repeatable, request)
          if (result !== undefined && isFinal(result, isInDoubt)) {
            return yield* isInDoubt ? afterDoubt(request, result) : result
          }
          isInDoubt ||= isLost
          if (isInDoubt && !isRepeatable(request)) return yield* Effect.fail(inDoubt)
        }
        // By now the session may have no owner, or belong to this node.
        const here = yield* Effect.either(execute(this.sessions, repeatable, request))
        const isElsewhere = Either.isLeft(here) && here.left._tag === "SessionElsewhere"
        if (!isElsewhere && isFinal(here, isInDoubt)) return yield* isInDoubt ? afterDoubt(request, here) : here
        const elapsed = (yield* Monotonic.millis) - startedAt
        const delay = delays[attempt]
        if (delay === undefined || elapsed >= Duration.toMillis(timeout))
          return yield* Effect.fail(isInDoubt ? inDoubt : unreachable)
        yield* Effect.sleep(delay)
      }
    })
  }
}

/** Without a link to other nodes, requests are executed on this node only. */
export const make: Effect.Effect<Execute, never, Sessions> = Effect.gen(function* () {
  const sessions = yield* Sessions
  const nodes = yield* SessionNodes
  const link = yield* NodeLink
  const tags = yield* MetricTags.current
  if (Option.isNone(link)) return (caller, request) => execute(sessions, caller, request)
  MetricTags.register(Object.values(series), tags)
  return new Routing(sessions, nodes, link.value, tags).execute
})
