/**
 * The gateway as a whole: sessions of agents for clients over WebSocket and HTTP.
 */
import { Config, Effect, Layer, Option } from "effect"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import type { Wanted } from "../Operations/Activity/Recorder.ts"
import * as ActivitySources from "../Operations/Activity/Sources.ts"
import * as Health from "../Operations/Health/Report.ts"
import { AgentPlatform } from "../Upstream/AgentPlatform.ts"
import * as AgUi from "./AgUi/Handlers.ts"
import * as AiSdk from "./AiSdk/Handlers.ts"
import * as Authentication from "./Authentication.ts"
import { layerAccess } from "./Clients/Credentials.ts"
import * as Clients from "./Clients.ts"
import * as Conversations from "./Conversations.ts"
import { NodeLink, type NodeLinkShape } from "./Forwarding/NodeLink.ts"
import * as NodeSettings from "./Forwarding/Settings.ts"
import * as GatewayMetrics from "./GatewayMetrics.ts"
import * as HttpSessions from "./HttpSessions/Handlers.ts"
import * as Retention from "./SessionEvents/Retention.ts"
import { SessionEvents } from "./SessionEvents.ts"
import { type ReachablePeer, SessionNodes } from "./SessionNodes.ts"
import * as Registry from "./Sessions/Registry.ts"
import * as SessionSettings from "./Sessions/Settings.ts"
import * as Socket from "./Socket.ts"
import * as Threads from "./Streams/Threads.ts"

/** The settings as configuration variables. */
export const config = Config.all({
  authentication: Authentication.config,
  sessions: SessionSettings.config,
  history: Retention.config,
  socket: Clients.config,
  nodes: NodeSettings.config
})

/** All settings of the gateway, as its configuration variables provide them. */
export type Settings = Config.Config.Success<typeof config>

/** Settings that override the defaults. */
export interface Options {
  readonly sessions?: Partial<SessionSettings.Settings>
  /** Events older than this are removed. Their maximum number is a setting of the storage. */
  readonly history?: Pick<Retention.Settings, "age">
  readonly socket?: Partial<Clients.Settings>
  /** How nodes that share a database forward requests to each other. */
  readonly nodes?: Option.Option<NodeSettings.Settings>
  /** Origins of web pages that may connect, in addition to the service's own. */
  readonly origins?: ReadonlyArray<string>
}

/** How long another node may take to say what it has recorded. */
const activityTimeout = "2 seconds"

/** The node, for `/health`. */
const layerNode = Layer.effect(
  Health.Node,
  Effect.map(SessionNodes, ({ status }) => ({ status: Effect.sync(status) }))
)

/** What the gateway knows of the activity of the service: sessions, and the other nodes. */
const layerActivity = Layer.effect(
  ActivitySources.Sources,
  Effect.gen(function* () {
    const events = yield* SessionEvents
    const nodes = yield* SessionNodes
    const link = Option.getOrUndefined(yield* NodeLink)
    const ask =
      (node: ReachablePeer, { activity }: NodeLinkShape) =>
      (wanted: Wanted) =>
        activity(node, wanted).pipe(
          Effect.timeoutOption(activityTimeout),
          Effect.map(Option.flatten),
          Effect.orElseSucceed(Option.none),
          Effect.map(recorded => ({
            ...{ id: node.node, isAnswering: Option.isSome(recorded) },
            ...Option.getOrUndefined(recorded)
          }))
        )
    const peers = Effect.orElseSucceed(Effect.timeout(nodes.peers, activityTimeout), () => [])
    const { addresses = [] } = yield* AgentPlatform
    return {
      sessions: events.counts,
      agents: addresses,
      nodes: Effect.map(link === undefined ? Effect.succeed([]) : peers, peers => ({
        self: nodes.self,
        count: Option.match(nodes.status(), { onNone: () => 1, onSome: ({ nodes }) => nodes }),
        others: link === undefined ? [] : peers.map(node => ask(node, link))
      }))
    }
  })
)

/** Receives requests of other nodes. Its modules are loaded only if nodes forward requests. */
const nodeServer = (settings: NodeSettings.Settings, { fileBytes }: Pick<Clients.Settings, "fileBytes">) =>
  Layer.unwrapEffect(
    Effect.map(
      Effect.promise(() => import("./Forwarding/NodeServer.ts")),
      ({ make }) => Layer.scopedDiscard(make({ ...settings, fileBytes }))
    )
  )

/** Sends requests to other nodes. */
const nodeLink = ({ secret }: NodeSettings.Settings) =>
  Layer.scoped(
    NodeLink,
    Effect.flatMap(
      Effect.promise(() => import("./Forwarding/NodeClient.ts")),
      ({ make }) => Effect.asSome(make(secret))
    )
  )

/**
 * The socket for clients, sessions over HTTP, their conversations, and the number of subscriptions for `/health`, with the
 * given authentication.
 *
 * The store and the session events must outlive it: at its end it stops every instance and stores the ends of turns.
 */
export const layerWith = <R>(
  authentication: Layer.Layer<Authentication.Authentication, never, R>,
  { history, nodes = Option.none(), sessions, socket }: Omit<Options, "origins"> = {}
) => {
  const limits = { ...Clients.defaults, ...socket }
  const [server, link] = Option.match(nodes, {
    onNone: () => [Layer.empty, Layer.empty] as const,
    onSome: settings => [nodeServer(settings, limits), nodeLink(settings)] as const
  })
  return Layer.mergeAll(
    Registry.layerSubscriptions,
    layerNode,
    layerActivity,
    Retention.layer((history ?? Retention.defaults).age),
    Layer.effectDiscard(Effect.map(MetricTags.current, GatewayMetrics.register)),
    server
  ).pipe(
    Layer.provideMerge(
      Layer.mergeAll(Socket.layer(limits), HttpSessions.layer, AgUi.layer, AiSdk.layer(limits), layerAccess)
    ),
    Layer.provide(Threads.layer),
    Layer.provideMerge(Clients.layer(limits)),
    Layer.provideMerge(Conversations.layer),
    Layer.provideMerge(Registry.layer({ ...SessionSettings.defaults, ...sessions })),
    Layer.provide([authentication, link])
  )
}

/** The same, with clients authenticated by `Auth` like the other requests of the application. */
export const layer = ({ origins = [], ...options }: Options = {}) =>
  layerWith(Authentication.layerIdentity({ origins }), options)
