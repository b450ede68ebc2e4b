/**
 * The gateway as a whole: sessions of agents for clients over WebSocket.
 */
import { Config, Effect, Layer } from "effect"
import * as MetricTags from "../MetricTags.ts"
import * as Authentication from "./Authentication.ts"
import * as GatewayMetrics from "./GatewayMetrics.ts"
import * as Retention from "./SessionEvents/Retention.ts"
import * as Registry from "./Sessions/Registry.ts"
import * as SessionSettings from "./Sessions/Settings.ts"
import * as Socket from "./Socket.ts"

/** The settings as configuration variables. */
export const config = Config.all({
  authentication: Authentication.config,
  sessions: SessionSettings.config,
  history: Retention.config,
  socket: Socket.config
})

export type Settings = Config.Config.Success<typeof config>

/**
 * The socket for clients, their sessions, and the number of subscriptions for `/health`.
 *
 * The store and the session events must outlive it: at its end it stops every instance and stores the ends of turns.
 */
export const layer = ({ authentication, history, sessions, socket }: Settings, { devMode }: { devMode: boolean }) =>
  Layer.mergeAll(
    Registry.layerSubscriptions,
    Retention.layer(history.age),
    Layer.effectDiscard(Effect.map(MetricTags.current, GatewayMetrics.register))
  ).pipe(
    Layer.provideMerge(Socket.layer(socket)),
    Layer.provideMerge(Registry.layer(sessions)),
    Layer.provide(devMode ? Authentication.layerDev(authentication) : Authentication.layer(authentication))
  )
