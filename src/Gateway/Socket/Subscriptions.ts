/** The subscriptions of one client. */
import { type Context, Effect, Exit, Scope } from "effect"
import { Feed } from "../Clients/Feed.ts"
import type { Replays } from "../Clients/Replays.ts"
import type { Execute } from "../Forwarding.ts"
import { errorAnswer } from "../Protocol/Answer.ts"
import type { Session } from "../Protocol/Fields.ts"
import { subscriptions as maxSubscriptions } from "../Protocol/Limits.ts"
import type { RequestOf } from "../Protocol/Request.ts"
import { type Failure, Refused, type RequestError } from "../Requests.ts"
import type { Caller, LookupError, Sessions, Subscription } from "../Sessions.ts"
import type * as Responder from "./Responder.ts"

/** The services and settings that the subscriptions of all connections share. */
export interface Shared extends Responder.Shared {
  readonly sessions: Context.Tag.Service<Sessions>
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

/** The subscriptions of one client: a feed for each session. */
export class Subscriptions {
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
  subscribe({
    id,
    sessionId,
    afterSeq = 0,
    epoch
  }: RequestOf<"subscribe">): Effect.Effect<void, LookupError | Refused> {
    return Effect.uninterruptibleMask(restore =>
      Effect.gen(this, function* () {
        if (!this.feeds.has(sessionId) && this.feeds.size + this.beginning >= maxSubscriptions) {
          const message = `The connection has ${maxSubscriptions} subscriptions, which is the limit`
          return yield* Effect.fail(new Refused({ code: "rate_limited", message }))
        }
        const scope = yield* Scope.make()
        const owner = {
          onBehind: (feed: Feed) => this.shared.replays.add(this.caller.tenant, feed),
          onDeleted: () => this.abandon(sessionId, feed, deleted),
          onLost: this.onLost,
          onUnreadable: (feed: Feed) => this.abandon(sessionId, feed, unreadable)
        }
        const feed: Feed = new Feed(this.responder, owner, this.shared.debug)
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
        const { headSeq, trimmedSeq } = subscription
        const session = subscription.isElsewhere
          ? yield* restore(this.viewElsewhere(id, subscription))
          : subscription.session
        if (this.isEnded) return yield* Scope.close(scope, Exit.void)
        // The node of the session may have found its history lost. Then the subscription ends soon.
        const isCurrent = session.epoch === subscription.epoch
        const isSame = isCurrent && (epoch === undefined || epoch === subscription.epoch)
        if (isSame && afterSeq > headSeq) {
          yield* Scope.close(scope, Exit.void)
          const message = `afterSeq is ${afterSeq}, and the newest event of the session has the seq ${headSeq}`
          return yield* Effect.fail(new Refused({ code: "bad_request", message }))
        }
        this.end(sessionId)
        this.feeds.set(sessionId, { feed, scope })
        const recovered = isSame && afterSeq >= trimmedSeq
        yield* restore(
          this.responder.answer(
            { type: "subscribed", id, session, epoch: subscription.epoch, headSeq, recovered },
            () => feed.begin(subscription, recovered ? afterSeq : trimmedSeq, !recovered)
          )
        )
      })
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
    for (const sessionId of [...this.feeds.keys()]) this.end(sessionId)
  }

  /** Ends a subscription that can have no further events, and notifies the client. */
  private abandon(sessionId: string, feed: Feed, failure: Failure): void {
    if (this.feeds.get(sessionId)?.feed !== feed) return
    this.end(sessionId)
    this.shared.run(
      Effect.flatMap(this.shared.traceId, traceId =>
        Effect.zipRight(
          failure === deleted
            ? Effect.void
            : Effect.logWarning("A subscription ended because its events cannot be read").pipe(
                Effect.annotateLogs({ tenant: this.caller.tenant, sessionId, traceId })
              ),
          this.responder.answer(errorAnswer({ id: undefined, sessionId, traceId, ...failure }))
        )
      )
    )
  }

  /** Ends a subscription. Returns whether there was one. */
  private end(sessionId: string): boolean {
    const found = this.feeds.get(sessionId)
    if (found === undefined) return false
    this.feeds.delete(sessionId)
    found.feed.end()
    this.shared.run(Scope.close(found.scope, Exit.void))
    return true
  }
}
