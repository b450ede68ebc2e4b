/** Which of our groups an api contains, as types and as values. */
import type * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import type * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import { Context, Option } from "effect"
import { AgUiGroup } from "../../Gateway/AgUi/Api.ts"
import { ChatGroup } from "../../Gateway/AiSdk/Api.ts"
import { type GatewayAccess, GatewayGroup } from "../../Gateway/Api.ts"
import { SessionsGroup } from "../../Gateway/HttpSessions/Api.ts"
import type { ReadAccess, WriteAccess } from "../../Http/Auth/Api.ts"
import { type HistoryBody, type JsonBody, type ObjectBody, Part } from "../../Http/Contract.ts"
import { DescriptionGroup } from "../../Http/OpenApi/Api.ts"
import { endpointsOf } from "../../Http/Router.ts"
import { KvGroup } from "../../Kv/Api.ts"
import { ActivityGroup } from "../../Operations/Activity/Api.ts"
import { ClusterGroup } from "../../Operations/Cluster/Api.ts"
import { HealthGroup } from "../../Operations/Health/Api.ts"
import { MetricsGroup } from "../../Operations/Metrics/Api.ts"
import { ChatPageGroup, ConsoleGroup, ReferenceGroup } from "../../Operations/Pages/Api.ts"

export const groups = {
  kv: KvGroup,
  cluster: ClusterGroup,
  health: HealthGroup,
  metrics: MetricsGroup,
  activity: ActivityGroup,
  description: DescriptionGroup,
  gateway: GatewayGroup,
  sessions: SessionsGroup,
  agUi: AgUiGroup,
  chat: ChatGroup,
  chatPage: ChatPageGroup,
  console: ConsoleGroup,
  reference: ReferenceGroup
} as const

type Groups = typeof groups

export type PartName = keyof Groups

export type IdOf<Api> = Api extends HttpApi.HttpApi<infer Id, infer _G, infer _E, infer _R> ? Id : never

export type GroupsOf<Api> = Api extends HttpApi.HttpApi<infer _Id, infer G, infer _E, infer _R> ? G : never

/** The middlewares before the whole of an api. */
export type ApiRequirements<Api> = Api extends HttpApi.HttpApi<infer _Id, infer _G, infer _E, infer R> ? R : never

/** The names of our groups in an api. A host's own group of the same name does not count. */
export type PartsOf<Api> = {
  readonly [Name in PartName]: [Groups[Name]] extends [GroupsOf<Api>] ? Name : never
}[PartName]

/** The services by which @effect/platform knows that groups are implemented. */
export type Implemented<Api> =
  PartsOf<Api> extends infer Name ? (Name extends string ? HttpApiGroup.ApiGroup<IdOf<Api>, Name> : never) : never

type GroupMiddleware<Group> =
  Group extends HttpApiGroup.HttpApiGroup<infer _Id, infer Endpoints, infer _E, infer R, infer _T>
    ? R | HttpApiEndpoint.HttpApiEndpoint.Context<Endpoints>
    : never

/** The middlewares that a host has put before our groups: it has to provide them. */
export type HostMiddleware<Api> = Exclude<
  HttpApiMiddleware.HttpApiMiddleware.Only<
    GroupMiddleware<Extract<GroupsOf<Api>, { readonly identifier: PartsOf<Api> }>>
  >,
  ReadAccess | WriteAccess | GatewayAccess | JsonBody | ObjectBody | HistoryBody
>

export const partsOf = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): ReadonlySet<string> =>
  new Set(endpointsOf(api).flatMap(({ group }) => Option.toArray(Context.getOption(group.annotations, Part))))

/** The path of an endpoint in an api; `undefined` if the api does not contain it. */
export const pathIn = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>,
  part: PartName,
  endpointName: string
): string | undefined =>
  endpointsOf(api).find(
    ({ endpoint, group }) =>
      endpoint.name === endpointName && Option.contains(Context.getOption(group.annotations, Part), part)
  )?.endpoint.path
