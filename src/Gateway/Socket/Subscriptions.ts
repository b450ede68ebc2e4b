/** The subscriptions of one client. */
import { type Context, Effect, Exit, Scope } from "effect"
import { MiB } from "../../base/Bytes.ts"
import { Feed, type FeedEnd, type Range } from "../Clients/Feed.ts"
import type { Replays } from "../Clients/Replays.ts"
import type { Conversations } from "../Conversations.ts"
import type { Execute } from "../Forwarding.ts"
import { errorAnswer } from "../Protocol/Answer.ts"
import type { Session } from "../Protocol/Fields.ts"
import { subscriptions as maxSubscriptions, pagedEvents } from "../Protocol/Limits.ts"
import type { RequestOf } from "../Protocol/Request.ts"
import { type Failure, Refused, type RequestError } from "../Requests.ts"
import type { Caller, LookupError, Sessions, Subscription } from "../Sessions.ts"
import { conversationFrames } from "./ConversationFrames.ts"
import type * as Responder from "./Responder.ts"

/** The services and settings that the subscriptions of all connections share. */
export interface Shared extends Responder.Shared {
  readonly sessions: Context.Tag.Service<Sessions>
  readonly conversations: Context.Tag.Service<Conversations>
  /** Executes a request, which may be for a session of another node. */
  readonly execute: Execute
  readonly replays: Replays
}

const unreadable: Failure = {
  code: "internal",
  message: "The events of the session cannot be read at present; its subscription has ended",
  retryable: true
}

/** How long another node may take to return one of its sessions. */
const viewTimeout = "2 seconds"

const deleted: Failure = { code: "not_found", message: "The session was deleted; its subscription has ended" }

type Subscribe = RequestOf<"subscribe">

/** Why the members of a request do not go together. */
const conflictOf = ({ afterSeq, beforeSeq, fold, limit, untilSeq }: Subscribe): string | undefined => {
  if (beforeSeq === undefined) {
    if (limit !== undefined) return "limit is for beforeSeq"
    return fold && afterSeq !== undefined ? "fold cannot be combined with afterSeq" : undefined
  }
  const isOther = fold || afterSeq !== undefined || untilSeq !== undefined
  return isOther ? "beforeSeq cannot be combined with afterSeq, untilSeq or fold" : undefined
}

/** What a subscriber gets, and whether it is what it has asked for: see `recovered` of the answer. */
interface Requested extends Range {
  readonly recovered: boolean
}

/** @param isSame whether the positions of the request are of this history */
const rangeOf = (request: Subscribe, { headSeq, trimmedSeq }: Subscription, isSame: boolean): Requested => {
  const { afterSeq = 0, beforeSeq, limit = pagedEvents.default, untilSeq } = request
  if (beforeSeq !== undefined) {
    const until = Math.min(Math.max(0, beforeSeq - 1), headSeq)
    const after = isSame ? Math.max(0, until - limit) : until
    return { after: Math.max(after, trimmedSeq), until, maySkip: true, recovered: isSame && after >= trimmedSeq }
  }
  const recovered = isSame && afterSeq >= trimmedSeq
  const range = { after: recovered ? afterSeq : trimmedSeq, maySkip: !recovered, recovered }
  return untilSeq === undefined ? range : { ...range, until: untilSeq }
}

const badRequest = (message: string) => Effect.fail(new Refused({ code: "bad_request", message }))

/** Maximum bytes of a conversation in memory, until its size is known. */
const conversationSize = 32 * MiB

/** The subscriptions of one client: a feed for each session, and one for each request of older events. */
export class Subscriptions {
  /** By session, or by the request for older events. */
  private readonly feeds = new Map<string, { readonly feed: Feed; readonly scope: Scope.CloseableScope }>()
  private beginning = 0
  private isEnded = false

  /** @param onLost called when events were removed before they could be sent: the client has to connect again */
  constructor(
    private readonly responder: Responder.Responder,
    private readonly caller: Caller,
    private readonly shared: Shared,
    private readonly onLost: () => void
  ) {}

  /** Answers `subscribed`, then sends missed and new events. A second subscription to a session replaces the first. */
  subscribe(request: Subscribe): Effect.Effect<void, LookupError | Refused> {
    return Effect.uninterruptibleMask(restore =>
      Effect.gen(this, function* () {
        const { beforeSeq, id, sessionId } = request
        const conflict = conflictOf(request)
        if (conflict !== undefined) return yield* badRequest(conflict)
        // No session has an id with a space.
        const key = beforeSeq === undefined ? sessionId : `before ${id}`
        if (!this.feeds.has(key) && this.feeds.size + this.beginning >= maxSubscriptions) {
          const message = `The connection has ${maxSubscriptions} subscriptions, which is the limit`
          return yield* Effect.fail(new Refused({ code: "rate_limited", message }))
        }
        const scope = yield* Scope.make()
        const feed = this.makeFeed(key, request)
        this.beginning++
        const subscription = yield* restore(
          this.shared.sessions.subscribe(this.caller, sessionId, feed).pipe(Scope.extend(scope))
        ).pipe(
          Effect.onError(() => Scope.close(scope, Exit.void)),
          Effect.ensuring(
            Effect.sync(() => {
              this.beginning--
            })
          )
        )
        if (this.isEnded) return yield* Scope.close(scope, Exit.void)
        const session = subscription.isElsewhere
          ? yield* restore(this.viewElsewhere(id, subscription))
          : subscription.session
        if (this.isEnded) return yield* Scope.close(scope, Exit.void)
        yield* this.begin(request, key, { feed, scope }, { ...subscription, session }, restore)
      })
    )
  }

  private makeFeed(key: string, request: Subscribe): Feed {
    const { id, sessionId } = request
    const onEnd = (reason: FeedEnd): void => {
      if (reason === "lost") return this.onLost()
      if (reason !== "complete") return this.abandon(key, request, feed, reason === "deleted" ? deleted : unreadable)
      if (this.feeds.get(key)?.feed !== feed) return
      this.end(key)
      this.shared.run(this.responder.answer({ type: "subscription_ended", id, sessionId }))
    }
    const onBehind = (feed: Feed) => this.shared.replays.add(this.caller.tenant, feed)
    const feed: Feed = new Feed(this.responder, { onBehind, onEnd }, this.shared.debug)
    return feed
  }

  /** Answers a request whose subscription was made, and starts to send. */
  private begin(
    request: Subscribe,
    key: string,
    made: { readonly feed: Feed; readonly scope: Scope.CloseableScope },
    subscription: Subscription,
    restore: <A, E>(effect: Effect.Effect<A, E>) => Effect.Effect<A, E>
  ): Effect.Effect<void, Refused> {
    return Effect.gen(this, function* () {
      const { afterSeq = 0, id } = request
      const { epoch, headSeq, session } = subscription
      // The node of the session may have found its history lost. Then the subscription ends soon.
      const isCurrent = session.epoch === epoch
      const isSame = isCurrent && (request.epoch === undefined || request.epoch === epoch)
      if (isSame && afterSeq > headSeq) {
        yield* Scope.close(made.scope, Exit.void)
        return yield* badRequest(`afterSeq is ${afterSeq}, and the newest event of the session has the seq ${headSeq}`)
      }
      this.end(key)
      this.feeds.set(key, made)
      const { recovered, ...range } = rangeOf(request, subscription, isSame)
      const answer = { type: "subscribed", id, session, epoch, headSeq, recovered } as const
      if (request.fold !== true) {
        return yield* restore(this.responder.answer(answer, () => made.feed.begin(subscription, range)))
      }
      yield* restore(this.responder.answer(answer))
      const conversation = this.sendConversation(made.feed, subscription, request.untilSeq)
      yield* Effect.forkIn(Effect.interruptible(conversation), made.scope)
    })
  }

  /** Sends the conversation, and then the events after it. The end of the subscription interrupts it. */
  private sendConversation(feed: Feed, subscription: Subscription, untilSeq: number | undefined): Effect.Effect<void> {
    const { conversations, files } = this.shared
    return files
      .use(this.caller.tenant, conversationSize, claim =>
        Effect.gen(this, function* () {
          const conversation = yield* conversations.read(subscription)
          const { seq, text } = conversation
          const frames = conversationFrames(subscription.session.id, conversation)
          yield* this.responder.sendConversation(frames, 2 * text.length, claim)
          return { after: seq, maySkip: false, ...(untilSeq !== undefined && { until: untilSeq }) }
        })
      )
      .pipe(
        Effect.map(range => feed.begin(subscription, range)),
        Effect.catchAllCause(cause =>
          Effect.zipRight(
            Effect.logDebug("A conversation could not be sent", cause),
            Effect.sync(() => feed.fail())
          )
        )
      )
  }

  /** A session of another node as its owner returns it, or else its stored record. */
  private viewElsewhere(id: string, { session }: Subscription): Effect.Effect<Session> {
    const request = { type: "get_session", id, sessionId: session.id } as const
    return this.shared.execute(this.caller, request).pipe(
      Effect.map(answer => (answer.type === "session" ? answer.session : session)),
      Effect.timeout(viewTimeout),
      Effect.orElseSucceed(() => session)
    )
  }

  /** Answers `unsubscribed`, even if there was no subscription to the session. */
  unsubscribe({ id, sessionId }: RequestOf<"unsubscribe">): Effect.Effect<void, RequestError | Refused> {
    return Effect.gen(this, function* () {
      if (!this.end(sessionId)) yield* this.shared.execute(this.caller, { type: "get_session", id, sessionId })
      yield* this.responder.answer({ type: "unsubscribed", id, sessionId })
    })
  }

  /** Ends all subscriptions, also those that are about to start. */
  endAll(): void {
    this.isEnded = true
    for (const key of [...this.feeds.keys()]) this.end(key)
  }

  /** Ends a subscription that can have no further events, and notifies the client. */
  private abandon(key: string, { beforeSeq, id, sessionId }: Subscribe, feed: Feed, failure: Failure): void {
    if (this.feeds.get(key)?.feed !== feed) return
    this.end(key)
    const ended = { id: beforeSeq === undefined ? undefined : id, sessionId }
    this.shared.run(
      Effect.flatMap(this.shared.traceId, traceId =>
        Effect.zipRight(
          failure === deleted
            ? Effect.void
            : Effect.logWarning("A subscription ended because its events cannot be read").pipe(
                Effect.annotateLogs({ tenant: this.caller.tenant, sessionId, traceId })
              ),
          this.responder.answer(errorAnswer({ ...ended, traceId, ...failure }))
        )
      )
    )
  }

  /** Ends a subscription. Returns whether there was one. */
  private end(key: string): boolean {
    const found = this.feeds.get(key)
    if (found === undefined) return false
    this.feeds.delete(key)
    found.feed.end()
    this.shared.run(Scope.close(found.scope, Exit.void))
    return true
  }
}
