import type * as HttpApi from "@effect/platform/HttpApi"
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import type { Layer, Scope } from "effect"

type AnyGroup = HttpApiGroup.HttpApiGroup.Any

/**
 * An api, of this service or of a host, that contains a group.
 *
 * The group may stand under a prefix and behind middlewares of the host; an api without it does not compile.
 */
export type ApiWith<Group, Id extends string, Groups extends AnyGroup, E, R> = HttpApi.HttpApi<Id, Groups, E, R> &
  ([Group] extends [Groups] ? unknown : { readonly "the api does not contain this group": Group })

/**
 * Implements a group in whichever api contains it, so that its routes stand where that api puts them.
 *
 * It is `HttpApiBuilder.group` for an api that is known by one of its groups only. Middlewares that the host
 * put before the group appear among the requirements.
 */
export const make = <
  Id extends string,
  Groups extends AnyGroup,
  E,
  R,
  Group extends AnyGroup,
  const Name extends HttpApiGroup.HttpApiGroup.Name<Group>,
  Return
>(
  api: ApiWith<Group, Id, Groups, E, R>,
  _group: Group,
  name: Name,
  build: (
    handlers: HttpApiBuilder.Handlers.FromGroup<E, never, HttpApiGroup.HttpApiGroup.WithName<Group, Name>>
  ) => HttpApiBuilder.Handlers.ValidateReturn<Return>
): Layer.Layer<
  HttpApiGroup.ApiGroup<Id, Name>,
  HttpApiBuilder.Handlers.Error<Return>,
  Exclude<
    HttpApiBuilder.Handlers.Context<Return> | HttpApiGroup.HttpApiGroup.MiddlewareWithName<Group | Groups, Name>,
    Scope.Scope
  >
> => {
  const wide: HttpApi.HttpApi<Id, Groups | Group, E, R> = api
  // The builder looks at no group but the named one, and at nothing of the api beside its groups.
  return HttpApiBuilder.group<Id, Group, E, never, Name, Return>(wide as HttpApi.HttpApi<Id, Group, E>, name, build)
}
