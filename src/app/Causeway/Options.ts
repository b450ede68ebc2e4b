/**
 * The options of a host for the parts that it mounts, and the types that follow from them: which services it has to
 * provide, and which it gets.
 */
import type * as HttpApi from "@effect/platform/HttpApi"
import { Context, type Duration, type Effect, type Layer } from "effect"
import type { LimitsShape } from "../../base/Limits.ts"
import type { Metrics } from "../../base/Observability/Metrics.ts"
import type { Tracer } from "../../base/Observability/Tracer.ts"
import type { AgUi } from "../../Gateway/AgUi/Endpoints.ts"
import type { AiSdk } from "../../Gateway/AiSdk/Endpoints.ts"
import type { GatewayAccess } from "../../Gateway/Api.ts"
import type { Access } from "../../Gateway/Clients/Access.ts"
import type { HttpSessions } from "../../Gateway/HttpSessions/Endpoints.ts"
import type { Socket } from "../../Gateway/Socket/Endpoints.ts"
import type { ReadAccess, WriteAccess } from "../../Http/Auth/Api.ts"
import type { Auth } from "../../Http/Auth/Auth.ts"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import type * as Edge from "../../Http/Edge/Edge.ts"
import type { AnyHandlers, Guard } from "../../Http/Endpoints.ts"
import type { Identify } from "../../Http/Identity.ts"
import type { ListenFailed } from "../../Http/ListenFailed.ts"
import type * as Gate from "../../Http/Server/Gate.ts"
import type { NodeServer, Options as ServerOptions } from "../../Http/Server/NodeServer.ts"
import type { ChangeFeed, FollowLimitsShape } from "../../Kv/ChangeFeed.ts"
import type { ChangeLog } from "../../Kv/ChangeLog.ts"
import type { Store } from "../../Kv/Store.ts"
import type { DependencyCheck, Health } from "../../Operations/Health/Report.ts"
import type { MetricsRoutesShape } from "../../Operations/Metrics/Endpoints.ts"
import type { PagesShape } from "../../Operations/Pages/Endpoints.ts"
import type { AgentPlatform } from "../../Upstream/AgentPlatform.ts"
import type { Inference } from "../../Upstream/Inference.ts"
import type { ApiRequirements, GroupsOf, HostMiddleware, Implemented, PartsOf } from "./Parts.ts"

/** What is mounted, and its services. The type requires the members that the api needs. */
export interface Options {
  /**
   * The api of the application. Those of our groups that it contains are implemented at the position that they have in
   * it: under any prefix, and behind middlewares of the host.
   */
  readonly api: HttpApi.HttpApi.Any
  /**
   * Where entries and changes are stored: `sqlite(directory)`, `memory`, or any other layer of both ports. The gateway
   * also requires the port `SessionEvents`, which these two provide.
   */
  readonly store?: Layer.Layer<Store | ChangeLog, unknown, unknown>
  /** Identifies the sender of a request. It is used for HTTP, WebSockets and the gateway. */
  readonly identity?: Identify<unknown>
  /** The gateway: `Gateway.layer()` of `causewayd/gateway`. */
  readonly gateway?:
    | Layer.Layer<Socket, unknown, unknown>
    | Layer.Layer<HttpSessions | Access, unknown, unknown>
    | Layer.Layer<AgUi | Access, unknown, unknown>
    | Layer.Layer<AiSdk | Access, unknown, unknown>
  /**
   * The services behind the gateway: `UpstreamClients.layer(settings)` of `causewayd/upstream`, or others. They may require
   * what the store provides.
   */
  readonly upstream?: Layer.Layer<AgentPlatform | Inference, unknown, unknown>
  /** How long change records are kept; forever by default. */
  readonly retention?: Duration.DurationInput | undefined
  /** Limits that differ from the defaults. */
  readonly limits?: Partial<LimitsShape>
  readonly followLimits?: Partial<FollowLimitsShape>
  /**
   * Origins of web pages that may follow the change log by WebSocket, in addition to those of the application's own
   * host.
   */
  readonly origins?: ReadonlyArray<string>
  /** Which routes show metrics; none by default. */
  readonly metrics?: Partial<MetricsRoutesShape>
  /** Which of the web pages in the api are served; all by default. */
  readonly pages?: Partial<PagesShape>
  /** Dependencies that `/health` shows in addition to the upstream services. */
  readonly checks?: ReadonlyArray<DependencyCheck<unknown>>
}

/** Additional options of the edge: the implementations of groups and middlewares of the host. */
export interface ApplicationOptions extends Options {
  /** The handlers of the host's own groups, by name; see `Endpoints.of`. */
  readonly handlers?: Readonly<Record<string, Effect.Effect<AnyHandlers, never, unknown>>>
  /** What the host's own middlewares do on the edge. */
  readonly guards?: Effect.Effect<ReadonlyArray<Guard>, never, unknown>
}

/** {@link ApplicationOptions} with the server. */
export interface EdgeOptions extends ApplicationOptions {
  /** The address of the server, and its shutdown. */
  readonly server: Omit<ServerOptions, "observe" | "isProbe">
}

type If<Condition, Then, Else = unknown> = [Condition] extends [never] ? Else : Then

type Contains<Api, Names> = Extract<PartsOf<Api>, Names>

/** The options that the groups of an api make necessary. */
export type Needed<Api> = If<
  Contains<Api, "kv" | "cluster" | "health" | "activity" | "gateway" | "sessions" | "agUi" | "chat">,
  { readonly store: Layer.Layer<Store | ChangeLog, unknown, unknown> }
> &
  If<
    Contains<Api, "kv" | "cluster" | "description" | "activity" | "gateway" | "sessions" | "agUi" | "chat">,
    { readonly identity: Identify<unknown> }
  > &
  If<Contains<Api, "gateway">, { readonly gateway: Layer.Layer<Socket, unknown, unknown> }> &
  If<Contains<Api, "sessions">, { readonly gateway: Layer.Layer<HttpSessions | Access, unknown, unknown> }> &
  If<Contains<Api, "agUi">, { readonly gateway: Layer.Layer<AgUi | Access, unknown, unknown> }> &
  If<Contains<Api, "chat">, { readonly gateway: Layer.Layer<AiSdk | Access, unknown, unknown> }> &
  If<
    Contains<Api, "gateway" | "sessions" | "agUi" | "chat">,
    {
      readonly upstream: Layer.Layer<AgentPlatform | Inference, unknown, unknown>
    },
    // While the compiler infers the options, the api is `any` at first, which must not be refused.
    If<GroupsOf<Api>, { readonly gateway?: never }>
  >

type ForeignGroups<Api> = Exclude<GroupsOf<Api>, { readonly identifier: PartsOf<Api> }>

type Member<O, Name extends string> = O extends { readonly [N in Name]: infer Value } ? Value : never

// Distributive, so that an absent member adds nothing.
type GuardedOf<Guards> =
  Guards extends Effect.Effect<ReadonlyArray<infer Known>, infer _E, infer _R> ? Edge.GuardedBy<Known> : never

/** The middlewares that have guards of ours. */
type OurAccess = ReadAccess | WriteAccess | GatewayAccess

/** The options that an api makes necessary on the edge: handlers and guards for groups and middlewares of the host. */
export type NeededByEdge<O extends ApplicationOptions> = Needed<O["api"]> &
  If<ForeignGroups<O["api"]>, { readonly handlers: Edge.HandlersOf<ForeignGroups<O["api"]>> }> &
  If<
    Exclude<Edge.MiddlewareOf<GroupsOf<O["api"]>, ApiRequirements<O["api"]>>, OurAccess>,
    {
      readonly guards: Effect.Effect<ReadonlyArray<Guard>, never, unknown> &
        Edge.GuardsFor<
          Exclude<Edge.MiddlewareOf<GroupsOf<O["api"]>, ApiRequirements<O["api"]>>, OurAccess>,
          GuardedOf<Member<O, "guards">>
        >
    }
  >

type SuccessOf<L> = L extends Layer.Layer<infer A, infer _E, infer _R> ? A : never
type ErrorOf<L> = L extends Layer.Layer<infer _A, infer E, infer _R> ? E : never
type ContextOf<L> = L extends Layer.Layer<infer _A, infer _E, infer R> ? R : never

/** What the layer itself provides to all of its parts. */
type Common = Metrics | Tracer | Auth

/** The services that a host gets, for example for its own handlers. */
export type Services<O extends Options> =
  | SuccessOf<Member<O, "store">>
  | SuccessOf<Member<O, "gateway">>
  | SuccessOf<Member<O, "upstream">>
  | Metrics
  | If<Contains<O["api"], "kv">, ChangeFeed, never>
  | If<Contains<O["api"], "health">, Health, never>
  | If<Member<O, "identity">, Auth, never>

/** Why the services cannot start. */
export type Failure<O extends Options> =
  | ErrorOf<Member<O, "store">>
  | ErrorOf<Member<O, "gateway">>
  | ErrorOf<Member<O, "upstream">>

type ContextOfEffect<Fx> = Fx extends Effect.Effect<infer _A, infer _E, infer R> ? R : never
type ContextOfIdentity<F> = F extends (...args: infer _Args) => infer Fx ? ContextOfEffect<Fx> : never
type ContextOfChecks<Checks> = Checks extends ReadonlyArray<infer Fx> ? ContextOfEffect<Fx> : never

/** What the services require of the host. */
export type Requirements<O extends Options> =
  | Exclude<ContextOf<Member<O, "store">>, Common>
  | Exclude<ContextOf<Member<O, "upstream">>, Common | SuccessOf<Member<O, "store">>>
  | Exclude<ContextOf<Member<O, "gateway">>, Common | SuccessOf<Member<O, "store">> | SuccessOf<Member<O, "upstream">>>
  | ContextOfIdentity<Member<O, "identity">>
  | ContextOfChecks<Member<O, "checks">>
  | If<Contains<O["api"], "kv" | "gateway" | "sessions" | "agUi" | "chat">, DrainingSignal, never>

/** The layer of an application of @effect/platform. */
export type PlatformLayer<O extends Options> = Layer.Layer<
  Implemented<O["api"]> | Services<O>,
  Failure<O>,
  Requirements<O> | HostMiddleware<O["api"]>
>

/** What the host's own groups and middlewares require, except what the layer itself provides. */
type OwnRequirements<O extends ApplicationOptions, Provided> = Exclude<
  Edge.HandlersContext<Member<O, "handlers">> | ContextOfEffect<Member<O, "guards">>,
  Services<O> | Common | Provided
>

/** The layer of an application on the edge. */
export type EdgeLayer<O extends EdgeOptions> = Layer.Layer<
  Services<O> | NodeServer,
  Failure<O> | ListenFailed,
  Requirements<O> | OwnRequirements<O, NodeServer> | DrainingSignal
>

/** The layer of an application for a server of the host's. */
export type ListenersLayer<O extends ApplicationOptions> = Layer.Layer<
  Services<O> | Listeners,
  Failure<O>,
  Requirements<O> | OwnRequirements<O, never>
>

/** An application for a `node:http` server of the host. */
export class Listeners extends Context.Tag("causeway/Listeners")<
  Listeners,
  Gate.Listeners & {
    /** Called with each request; the function that it returns is called at the end of the request. */
    readonly observe: Gate.Observe
  }
>() {}
