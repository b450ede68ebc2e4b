/**
 * Handing sessions with secrets over to another node, when this one ends as planned. Secrets are in memory alone, and
 * clients would be asked for them again.
 */
import { Data, Deferred, type Duration, Effect, Either, Option } from "effect"
import * as Monotonic from "../../Monotonic.ts"
import * as Supervision from "../../Supervision.ts"
import type { NodeLinkShape } from "../Forwarding/NodeLink.ts"
import type { ReachablePeer, SessionNodesShape } from "../SessionNodes.ts"
import type { HandedOver, Sessions, SessionsBusy } from "../Sessions.ts"
import type { SecretPool } from "./SecretPool.ts"

/**
 * Sessions that are handed over at a time: for each node that may take them, and in all. More would only wait there for a
 * connection to the database, and all of them would be late where that is slow.
 */
const concurrency = { perNode: 8, inAll: 32 } as const

/** Nodes that are asked to take a session. */
const attempts = 3

/** How long a node is waited for before the next one is asked as well. */
const attemptLimit = "400 millis"

export interface Options {
  readonly nodes: SessionNodesShape
  readonly link: Option.Option<NodeLinkShape>
  readonly secrets: SecretPool
  readonly isClosing: () => boolean
}

export interface Handover {
  /**
   * Gives the sessions with secrets that pass a test to other nodes, as far as these take them within a time. Clients are
   * asked for the secrets of those that are left.
   */
  readonly give: (mayGive: (session: string) => boolean, limit: Duration.DurationInput) => Effect.Effect<void>
  /** Takes a session of a node that ends. */
  readonly adopt: (typeof Sessions)["Service"]["adopt"]
}

/** This node owns the session already, or believes so. Of that, what it has is newer than what it is given. */
class AlreadyOwned extends Data.TaggedError("AlreadyOwned") {}

/** No node that was asked has taken the session. */
class NotTaken extends Data.TaggedError("NotTaken") {}

/** Gives sessions to nodes. `onGiven` is called with each that one has taken. */
const giveAll = (
  link: NodeLinkShape,
  peers: ReadonlyArray<ReachablePeer>,
  sessions: ReadonlyArray<HandedOver>,
  onGiven: (session: string) => void
): Effect.Effect<void> => {
  /** Nodes that did not answer in time when they were asked last. They are asked after the others. */
  const stalled = new Set<string>()

  /** The next node to ask, in turn from the one at an index. */
  const next = (index: number, asked: ReadonlySet<string>): ReachablePeer | undefined => {
    if (asked.size === attempts) return undefined
    const left = [...peers.keys()]
      .map(offset => peers[(index + offset) % peers.length]!)
      .filter(({ node }) => !asked.has(node))
    return left.find(({ node }) => !stalled.has(node)) ?? left[0]
  }

  const ask = (peer: ReachablePeer, handedOver: HandedOver): Effect.Effect<void, NotTaken> =>
    link.handOver(peer, handedOver).pipe(
      Effect.either,
      Effect.flatMap(answer => {
        const hasAnswered = Either.isRight(answer) || ["SessionsBusy", "NodeRefused"].includes(answer.left._tag)
        if (hasAnswered) stalled.delete(peer.node)
        else stalled.add(peer.node)
        return Either.isRight(answer) && answer.right ? Effect.void : new NotTaken()
      })
    )

  /**
   * Asks one node after the other, the next one too where one does not answer, until one has taken the session. Only one
   * of them can: the others find that it is not this node's any more.
   */
  const askFrom = (index: number, handedOver: HandedOver, asked: Set<string>): Effect.Effect<void, NotTaken> =>
    Effect.gen(function* () {
      const peer = next(index, asked)
      if (peer === undefined) return yield* new NotTaken()
      asked.add(peer.node)
      const refused = yield* Deferred.make<void>()
      const asking = Effect.tapError(ask(peer, handedOver), () => Deferred.succeed(refused, undefined))
      const others = Effect.gen(function* () {
        const answer = yield* Effect.timeoutOption(Deferred.await(refused), attemptLimit)
        if (Option.isNone(answer)) stalled.add(peer.node)
        yield* askFrom(index, handedOver, asked)
      })
      // The first that succeeds; what the other one does is interrupted then.
      yield* Effect.race(asking, others)
    })

  const giveOne = (handedOver: HandedOver, index: number) =>
    Effect.match(askFrom(index, handedOver, new Set()), {
      onFailure: () => undefined,
      onSuccess: () => onGiven(handedOver.session)
    })
  return Effect.forEach(sessions, giveOne, {
    concurrency: Math.min(concurrency.perNode * peers.length, concurrency.inAll),
    discard: true
  })
}

export const make = ({ isClosing, link, nodes, secrets }: Options): Handover => {
  /** The sessions whose secrets this node has, with these. */
  const held = (): ReadonlyArray<HandedOver> =>
    secrets.sessions().flatMap(session => {
      const token = nodes.tokenOf(session)
      const values = secrets.get(session)
      if (token === undefined || Object.keys(values).length === 0) return []
      return [{ session, from: { node: nodes.self, token }, secrets: values }]
    })

  return {
    give: (mayGive, limit) =>
      Effect.gen(function* () {
        const sessions = held()
        if (Option.isNone(link) || sessions.length === 0) return
        const ready = sessions.filter(({ session }) => mayGive(session))
        let given = 0
        const onGiven = (session: string): void => {
          secrets.forget(session)
          given++
        }
        const giving = Effect.flatMap(nodes.peers, peers =>
          peers.length === 0 ? Effect.succeed(false) : Effect.as(giveAll(link.value, peers, ready, onGiven), true)
        )
        const ended = yield* Supervision.within(limit, Effect.either(giving))
        const reason = Option.match(ended, {
          onNone: () => `it took longer than ${Monotonic.words(limit)}`,
          onSome: Either.match({
            onLeft: ({ reason }) => `the other nodes are not known: ${reason}`,
            onRight: hasPeers => {
              if (!hasPeers) return "no other node takes requests"
              if (given < ready.length) return "the other nodes did not take them"
              return "they could not be stopped in time"
            }
          })
        })
        yield* given === sessions.length
          ? Effect.annotateLogs(Effect.logInfo("Sessions with secrets were handed over to other nodes"), { given })
          : Effect.annotateLogs(
              Effect.logWarning(
                "Secrets of sessions were not handed over to other nodes; clients have to give them again"
              ),
              { given, left: sessions.length - given, reason }
            )
      }),
    adopt: ({ from, secrets: given, session }) => {
      let adopting: number | undefined
      const prepare = (token: number) =>
        Effect.suspend((): Effect.Effect<void, AlreadyOwned | SessionsBusy> => {
          if (nodes.tokenOf(session) !== undefined) return new AlreadyOwned()
          adopting = token
          return secrets.put(session, given, token)
        })
      const forget = Effect.sync(() => {
        // After an interruption it may be this node's all the same.
        if (adopting !== undefined && nodes.tokenOf(session) !== adopting) secrets.forget(session, adopting)
      })
      if (isClosing()) return Effect.succeed(false)
      return nodes.adopt(session, from, prepare).pipe(
        Effect.tap(isAdopted => (isAdopted ? Effect.void : forget)),
        Effect.onError(() => forget),
        Effect.catchTag("AlreadyOwned", () => Effect.succeed(false))
      )
    }
  }
}
