/**
 * Handing sessions with secrets over to another node, when this one ends as planned. Secrets are in memory alone, and
 * clients would be asked for them again.
 */
import { Data, Effect, Either, Option } from "effect"
import * as Supervision from "../../Supervision.ts"
import type { NodeLinkShape } from "../Forwarding/NodeLink.ts"
import type { SessionNodesShape } from "../SessionNodes.ts"
import type { HandedOver, Sessions, SessionsBusy } from "../Sessions.ts"
import type { SecretPool } from "./SecretPool.ts"

/** How long it may take. Clients are asked for the secrets of sessions that are left. */
const limit = "1500 millis"

/** Sessions that are handed over at a time. */
const concurrency = 32

/** Nodes that are asked to take a session, one after the other. */
const attempts = 3

/** How long a node may take to answer. All attempts together are shorter than the whole. */
const attemptLimit = "400 millis"

export interface Options {
  readonly nodes: SessionNodesShape
  readonly link: Option.Option<NodeLinkShape>
  readonly secrets: SecretPool
  readonly isClosing: () => boolean
}

export interface Handover {
  /** Gives the sessions with secrets that pass a test to other nodes, as far as these take them. */
  readonly give: (mayGive: (session: string) => boolean) => Effect.Effect<void>
  /** Takes a session of a node that ends. */
  readonly adopt: (typeof Sessions)["Service"]["adopt"]
}

/** This node owns the session already, or believes so. Of that, what it has is newer than what it is given. */
class AlreadyOwned extends Data.TaggedError("AlreadyOwned") {}

export const make = ({ isClosing, link, nodes, secrets }: Options): Handover => {
  const giveAll = (link: NodeLinkShape, sessions: ReadonlyArray<string>) =>
    Effect.gen(function* () {
      const peers = yield* nodes.peers
      if (peers.length === 0) return
      /** Nodes that did not answer when they were asked last. They are asked where no other is left. */
      const stalled = new Set<string>()
      let given = 0

      /** The next node to ask, in turn from the one at an index. */
      const next = (index: number, asked: ReadonlySet<string>) => {
        const left = [...peers.keys()]
          .map(offset => peers[(index + offset) % peers.length]!)
          .filter(({ node }) => !asked.has(node))
        return left.find(({ node }) => !stalled.has(node)) ?? left[0]
      }

      /** Whether a node has taken a session. */
      const ask = (peer: (typeof peers)[number], handedOver: HandedOver) =>
        Effect.map(Supervision.within(attemptLimit, Effect.either(link.handOver(peer, handedOver))), answer => {
          const answered = Option.filter(
            answer,
            result =>
              Either.isRight(result) || result.left._tag === "SessionsBusy" || result.left._tag === "NodeRefused"
          )
          if (Option.isSome(answered)) stalled.delete(peer.node)
          else stalled.add(peer.node)
          return Option.exists(answered, result => Either.isRight(result) && result.right)
        })

      const giveOne = (session: string, index: number) =>
        Effect.gen(function* () {
          const token = nodes.tokenOf(session)
          const held = secrets.get(session)
          if (token === undefined || Object.keys(held).length === 0) return
          const handedOver = { session, from: { node: nodes.self, token }, secrets: held }
          const asked = new Set<string>()
          while (asked.size < attempts) {
            const peer = next(index, asked)
            if (peer === undefined) return
            asked.add(peer.node)
            if (!(yield* ask(peer, handedOver))) continue
            secrets.forget(session)
            given++
            return
          }
        })
      yield* Effect.ensuring(
        Effect.forEach(sessions, giveOne, { concurrency, discard: true }),
        Effect.suspend(() =>
          Effect.annotateLogs(Effect.logInfo("Sessions with secrets were handed over to other nodes"), {
            sessions: sessions.length,
            given
          })
        )
      )
    })

  return {
    give: mayGive =>
      Effect.suspend(() => {
        const sessions = secrets.sessions().filter(mayGive)
        if (Option.isNone(link) || sessions.length === 0) return Effect.void
        return Effect.asVoid(Supervision.within(limit, Effect.ignore(giveAll(link.value, sessions))))
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
