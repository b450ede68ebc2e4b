/**
 * The parts of this service compiled into listeners: on our own server, or for a server of the host's. It loads nothing
 * of the platform's server, which takes 25 MiB.
 */
import { Effect, Layer } from "effect"
import * as Access from "../../Gateway/Clients/Access.ts"
import * as Auth from "../../Http/Auth/Auth.ts"
import * as Edge from "../../Http/Edge/Edge.ts"
import { pathOf } from "../../Http/Router.ts"
import * as NodeServer from "../../Http/Server/NodeServer.ts"
import * as RequestMetrics from "../../Http/Server/RequestMetrics.ts"
import * as Body from "../../Kv/Body.ts"
import type { ApplicationOptions, EdgeLayer, EdgeOptions, ListenersLayer, NeededByEdge } from "./Options.ts"
import { Listeners } from "./Options.ts"
import { partsOf, pathIn } from "./Parts.ts"
import { type Erased, handlersIn, type ReflectedApi, reflected, services } from "./Services.ts"

/** Compiles an application, and adds the services that its listeners require. */
const compile = (options: ApplicationOptions) => {
  const api = reflected(options.api)
  const parts = partsOf(api)
  const { guards = Effect.succeed([]), handlers = {} } = options
  const ours = options.identity === undefined ? Effect.succeed([]) : Auth.guards
  const ofGateway = parts.has("sessions") || parts.has("agUi") || parts.has("chat") ? Access.guards : Effect.succeed([])
  const all = Effect.map(Effect.all([ours, ofGateway, guards]), groups => groups.flat())
  return {
    api,
    listeners: Edge.make(api, { ...handlers, ...Object.fromEntries(handlersIn(api, parts)) } as never, all as never),
    observer: RequestMetrics.observer(api),
    /** Provides a layer with the services that the listeners need. */
    on: (layer: Erased): Erased => layer.pipe(Layer.provide(Body.layer), Layer.provideMerge(services(options, parts)))
  }
}

/** The listeners of an application, and the services behind our groups. The host ends its server itself. */
export const layerListeners = <const O extends ApplicationOptions>(options: O & NeededByEdge<O>): ListenersLayer<O> => {
  const { listeners, observer, on } = compile(options)
  const made = Effect.zipWith(listeners, observer, (listeners, observe) => ({ ...listeners, observe }))
  return on(Layer.effect(Listeners, made)) as ListenersLayer<O>
}

/**
 * Serves an application on our own server, the compiled edge, and provides the services behind our groups. The server
 * listens once they are built, and drains before they are released. It counts requests by the routes of the api.
 *
 * Groups that are not ours need `handlers`, and middlewares that are not ours `guards`; without them it does not
 * compile.
 */
export const layerEdge = <const O extends EdgeOptions>(options: O & NeededByEdge<O>): EdgeLayer<O> => {
  const { server }: EdgeOptions = options
  const { api, listeners, observer, on } = compile(options)
  const listening = Layer.unwrapEffect(
    Effect.map(observer, observe => NodeServer.layer({ ...server, observe, isProbe: probeOf(api) }))
  )
  const serving: Erased = NodeServer.serve(listeners)
  return on(Layer.provideMerge(serving, listening)) as EdgeLayer<O>
}

const probeOf = (api: ReflectedApi): ((target: string) => boolean) => {
  const probes = new Set(["alive", "ready"].map(name => pathIn(api, "health", name)))
  return target => probes.has(pathOf(target))
}
