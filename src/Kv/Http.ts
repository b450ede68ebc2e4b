/**
 * The key-value group on @effect/platform's own server, for this service and for any host that mounts it.
 */
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Effect } from "effect"
import * as GroupLayer from "../Http/GroupLayer.ts"
import { empty, respond } from "../Http/Reply.ts"
import { upgradeOf } from "../Http/Upgrade.ts"
import { KvGroup } from "./Api.ts"
import * as Handlers from "./Handlers.ts"

const pathOf = (request: HttpServerRequest.HttpServerRequest): string => request.originalUrl.split("?", 1)[0]!

/** Implements the `kv` group of an api that contains it. */
export const layer = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: GroupLayer.ApiWith<typeof KvGroup, Id, Groups, E, R>
) =>
  GroupLayer.make(api, KvGroup, "kv", handlers =>
    handlers
      .handle("list", ({ path, request, urlParams }) =>
        respond(Handlers.list({ path, urlParams, target: pathOf(request) }))
      )
      .handle("get", request => respond(Handlers.get(request)))
      .handle("set", request => respond(Handlers.set(request)))
      .handle("delete", request => respond(Handlers.remove(request)))
      .handle("batch", request => respond(Handlers.batch(request)))
      .handle("changes", request => respond(Handlers.changes(request)))
      .handle("changesStream", request => respond(Handlers.changesStream(request)))
      .handleRaw("changesSocket", ({ request, urlParams }) =>
        respond(
          Handlers.changesSocket({ urlParams, upgrade: upgradeOf(request) }).pipe(
            // The server would write an answer on a socket that is not its any more: by then it has to be closed.
            Effect.flatMap(closed => Effect.as(closed, empty(101)))
          )
        )
      )
  )
