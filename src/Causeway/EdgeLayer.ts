/**
 * The parts of this service on our own server. It loads nothing of the platform's server, which takes 25 MiB.
 */
import { Effect, Layer } from "effect"
import * as Auth from "../Auth/Auth.ts"
import * as Edge from "../Http/Edge/Edge.ts"
import { pathOf } from "../Http/Router.ts"
import * as NodeServer from "../Http/Server/NodeServer.ts"
import * as RequestMetrics from "../Http/Server/RequestMetrics.ts"
import * as Body from "../Kv/Body.ts"
import type { EdgeLayer, EdgeOptions, NeededByEdge } from "./Options.ts"
import { partsOf, pathIn } from "./Parts.ts"
import { type Erased, handlersIn, type ReflectedApi, reflected, services } from "./Services.ts"

/**
 * Serves an application on our own server, the compiled edge, and provides the services behind our groups. The server
 * listens once they are there, and drains before they end; it counts requests by the routes of the api.
 *
 * Groups that are not ours need `handlers`, and middlewares that are not ours `guards`; without them it does not compile.
 */
export const layerEdge = <const O extends EdgeOptions>(options: O & NeededByEdge<O>): EdgeLayer<O> => {
  const api = reflected(options.api)
  const parts = partsOf(api)
  const { guards = Effect.succeed([]), handlers = {}, server }: EdgeOptions = options
  const ours = options.identity === undefined ? Effect.succeed([]) : Auth.guards
  const all = Effect.zipWith(ours, guards, (some, others) => [...some, ...others])
  const listeners = Edge.make(
    api,
    { ...handlers, ...Object.fromEntries(handlersIn(api, parts)) } as never,
    all as never
  )
  const listening = Layer.unwrapEffect(
    Effect.map(RequestMetrics.observer(api), observe => NodeServer.layer({ ...server, observe, isProbe: probeOf(api) }))
  )
  const serving: Erased = NodeServer.serve(listeners)
  return serving.pipe(
    Layer.provideMerge(listening),
    Layer.provide(Body.layer),
    Layer.provideMerge(services(options, parts))
  ) as EdgeLayer<O>
}

/** Tells whether a target is one of the api's probes for orchestrators. */
const probeOf = (api: ReflectedApi): ((target: string) => boolean) => {
  const probes = new Set(["alive", "ready"].map(name => pathIn(api, "health", name)))
  return target => probes.has(pathOf(target))
}
