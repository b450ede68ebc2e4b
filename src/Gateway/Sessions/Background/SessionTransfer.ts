/**
 * The transfer of sessions with secrets to other nodes when this one shuts down. Secrets are kept in memory only:
 * without a transfer, clients would have to send them again.
 */
import { Data, Deferred, type Duration, Effect, Either, Option } from "effect"
import * as Supervision from "../../../base/Supervision.ts"
import * as Monotonic from "../../../base/Time/Monotonic.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type { NodeLinkShape } from "../../Forwarding/NodeLink.ts"
import type { ReachablePeer, SessionNodesShape } from "../../SessionNodes.ts"
import type { SessionsBusy, TransferredSession } from "../../Sessions.ts"
import type { SecretPool } from "../Session/SecretPool.ts"

/**
 * Concurrent transfers: for each node that may take sessions, and in all. More would only wait for that node's database
 * connections, and all of them would be late if the database is slow.
 */
const concurrency = { perNode: 8, inAll: 32 } as const

/** How many nodes are asked to take a session. */
const attempts = 3

/** After this time without an answer the next node is asked too. */
const attemptTimeout = "400 millis"

/** The secrets of this node, and the way to other nodes. */
export interface Options {
  readonly nodes: SessionNodesShape
  readonly link: Option.Option<NodeLinkShape>
  readonly secrets: SecretPool
  readonly isClosing: () => boolean
}

/** This node owns the session already. Its secrets are newer than those that were sent. */
class AlreadyOwned extends Data.TaggedError("AlreadyOwned") {}

/** No node that was asked has taken the session. */
class NotTaken extends Data.TaggedError("NotTaken") {}

/** Sends sessions to nodes. `onTaken` is called with each session that a node has taken. */
const sendAll = (
  link: NodeLinkShape,
  peers: ReadonlyArray<ReachablePeer>,
  sessions: ReadonlyArray<TransferredSession>,
  onTaken: (session: string) => void
): Effect.Effect<void> => {
  /** Nodes that did not answer their last request in time. They are asked after the others. */
  const stalled = new Set<string>()

  /** The next node to ask, round robin from the one at `index`. */
  const next = (index: number, asked: ReadonlySet<string>): ReachablePeer | undefined => {
    if (asked.size === attempts) return undefined
    const left = [...peers.keys()]
      .map(offset => peers[(index + offset) % peers.length]!)
      .filter(({ node }) => !asked.has(node))
    return left.find(({ node }) => !stalled.has(node)) ?? left[0]
  }

  const ask = (peer: ReachablePeer, transferred: TransferredSession): Effect.Effect<void, NotTaken> =>
    link.transfer(peer, transferred).pipe(
      Effect.either,
      Effect.flatMap(answer => {
        const hasAnswered = Either.isRight(answer) || ["SessionsBusy", "NodeRefused"].includes(answer.left._tag)
        if (hasAnswered) stalled.delete(peer.node)
        else stalled.add(peer.node)
        return Either.isRight(answer) && answer.right ? Effect.void : new NotTaken()
      })
    )

  /**
   * Asks one node after the other until one has taken the session. If a node does not answer in time, the next one is
   * asked too. Only one of them can take the session: the others find that this node does not own it any longer.
   */
  const askFrom = (index: number, transferred: TransferredSession, asked: Set<string>): Effect.Effect<void, NotTaken> =>
    Effect.gen(function* () {
      const peer = next(index, asked)
      if (peer === undefined) return yield* new NotTaken()
      asked.add(peer.node)
      const refused = yield* Deferred.make<void>()
      const asking = Effect.tapError(ask(peer, transferred), () => Deferred.succeed(refused, undefined))
      const others = Effect.gen(function* () {
        const answer = yield* Effect.timeoutOption(Deferred.await(refused), attemptTimeout)
        if (Option.isNone(answer)) stalled.add(peer.node)
        yield* askFrom(index, transferred, asked)
      })
      // The first success wins, and the other request is interrupted.
      yield* Effect.race(asking, others)
    })

  const sendOne = (transferred: TransferredSession, index: number) =>
    Effect.match(askFrom(index, transferred, new Set()), {
      onFailure: () => undefined,
      onSuccess: () => onTaken(transferred.session)
    })
  return Effect.forEach(sessions, sendOne, {
    concurrency: Math.min(concurrency.perNode * peers.length, concurrency.inAll),
    discard: true
  })
}

/** Transfers sessions with secrets between nodes. Without a link nothing is sent, and the secrets are lost. */
export class SessionTransfer {
  constructor(private readonly options: Options) {}

  /** The sessions that this node owns, with their secrets. Those without secrets are left out. */
  private owned(): ReadonlyArray<TransferredSession> {
    const { nodes, secrets } = this.options
    return secrets.sessions().flatMap(session => {
      const token = nodes.tokenOf(session)
      const values = secrets.get(session)
      if (token === undefined || Object.keys(values).length === 0) return []
      return [{ session, from: { node: nodes.self, token }, secrets: values }]
    })
  }

  /**
   * Transfers the sessions with secrets for which `isReady` is true, as far as other nodes take them within the timeout.
   * Logs how many are left. Clients have to send the secrets of those again.
   */
  send(isReady: (session: string) => boolean, timeout: Duration.DurationInput): Effect.Effect<void> {
    const { link, nodes, secrets } = this.options
    return Effect.gen(this, function* () {
      const sessions = this.owned()
      if (Option.isNone(link) || sessions.length === 0) return
      const ready = sessions.filter(({ session }) => isReady(session))
      let given = 0
      const onTaken = (session: string): void => {
        secrets.forget(session)
        given++
      }
      const sending = Effect.flatMap(nodes.peers, peers =>
        peers.length === 0
          ? Effect.succeed("no other node takes requests")
          : Effect.as(sendAll(link.value, peers, ready, onTaken), undefined)
      )
      const unknown = ({ reason }: StoreUnavailable) => `the other nodes are not known: ${reason}`
      const ended = yield* Supervision.within(timeout, Effect.merge(Effect.mapError(sending, unknown)))
      if (given === sessions.length) {
        const message = "Sessions with secrets were transferred to other nodes"
        return yield* Effect.annotateLogs(Effect.logInfo(message), { given })
      }
      const reason =
        Option.getOrElse(ended, () => `it took longer than ${Monotonic.words(timeout)}`) ??
        (given < ready.length ? "the other nodes did not take them" : "they could not be stopped in time")
      yield* Effect.logWarning(
        "Secrets of sessions were not transferred to other nodes; clients have to give them again"
      ).pipe(Effect.annotateLogs({ given, left: sessions.length - given, reason }))
    })
  }

  /** Takes a session from a node that shuts down. */
  adopt({
    from,
    secrets: given,
    session
  }: TransferredSession): Effect.Effect<boolean, SessionsBusy | StoreUnavailable> {
    const { isClosing, nodes, secrets } = this.options
    if (isClosing()) return Effect.succeed(false)
    let adopting: number | undefined
    const prepare = (token: number) =>
      Effect.suspend((): Effect.Effect<void, AlreadyOwned | SessionsBusy> => {
        if (nodes.tokenOf(session) !== undefined) return new AlreadyOwned()
        adopting = token
        return secrets.put(session, given, token)
      })
    const forget = Effect.sync(() => {
      // The session may belong to this node even after an interruption.
      if (adopting !== undefined && nodes.tokenOf(session) !== adopting) secrets.forget(session, adopting)
    })
    return nodes.adopt(session, from, prepare).pipe(
      Effect.tap(isAdopted => (isAdopted ? Effect.void : forget)),
      Effect.onError(() => forget),
      Effect.catchTag("AlreadyOwned", () => Effect.succeed(false))
    )
  }
}
