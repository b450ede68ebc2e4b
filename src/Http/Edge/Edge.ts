/**
 * Serves an `HttpApi` on `node:http`: its endpoints are compiled once into a router, in place of the platform's
 * machinery. A direct answer needs no fiber, unless tracing is on.
 */

import { ServerResponse } from "node:http"
import type * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import type * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import { Effect, FiberRef, LogLevel, Option, Runtime } from "effect"
import type { JsonBody } from "../Contract.ts"
import type { AnyHandlers, Guard, Handlers } from "../Endpoints.ts"
import { requestIds } from "../HeaderFields.ts"
import * as Body from "../RequestBody.ts"
import { pathOf, problemOfTarget } from "../Router.ts"
import type { Listeners } from "../Server/Gate.ts"
import { compile } from "./Compile.ts"
import { Exchange, ResponseBatcher, type Serving } from "./Exchange.ts"

const noop = (): void => {}

/** The handlers of each group of an api, by its name. */
export type HandlersOf<Groups extends HttpApiGroup.HttpApiGroup.Any> = {
  readonly [Group in Groups as Group["identifier"]]: Effect.Effect<Handlers<Group>, never, unknown>
}

type MiddlewareOfGroup<Group> =
  Group extends HttpApiGroup.HttpApiGroup<infer _Id, infer Endpoints, infer _E, infer R, infer _T>
    ? R | HttpApiEndpoint.HttpApiEndpoint.Context<Endpoints>
    : never

type ContextOf<Handled> = Handled extends Effect.Effect<infer _A, infer _E, infer R> ? R : never

/** What the handlers of all groups require. */
export type HandlersContext<All> = ContextOf<All[keyof All]>

/** The middlewares of an api's endpoints. */
export type MiddlewareOf<Groups, R> = Exclude<
  HttpApiMiddleware.HttpApiMiddleware.Only<R | MiddlewareOfGroup<Groups>>,
  JsonBody
>

/** The middlewares that guards implement. */
export type GuardedBy<Known> = Known extends Guard<infer Middleware> ? Middleware : never

/** Guards that implement all these middlewares; others do not compile. */
export type GuardsFor<Middleware, Guarded> = [Exclude<Middleware, Guarded>] extends [never]
  ? unknown
  : { readonly "there is no guard for this middleware": Exclude<Middleware, Guarded> }

/**
 * Compiles the listeners for an api. `groups` has the handlers of each of its groups, by name, and `guards` implements
 * its middlewares. A group without handlers, and a middleware without a guard, do not compile.
 */
export const make = <
  Id extends string,
  Groups extends HttpApiGroup.HttpApiGroup.Any,
  E,
  R,
  const All extends HandlersOf<Groups>,
  R2,
  Known extends Guard
>(
  api: HttpApi.HttpApi<Id, Groups, E, R>,
  groups: All,
  guards: Effect.Effect<ReadonlyArray<Known>, never, R2> & GuardsFor<MiddlewareOf<Groups, R>, GuardedBy<Known>>
): Effect.Effect<Listeners, never, HandlersContext<All> | R2 | Body.BodyFormat> =>
  Effect.gen(function* () {
    type Needs = HandlersContext<All>
    // The types of the handlers have been checked; requests are decoded by the schemas of their groups.
    const handlers = Effect.all(groups as Readonly<Record<string, Effect.Effect<AnyHandlers, never, Needs>>>)
    const router = compile(api, yield* handlers, yield* guards as Effect.Effect<ReadonlyArray<Known>, never, R2>)
    // A failure of a handler is an ordinary answer; defects are logged separately.
    const runtime = yield* Effect.locally(Effect.runtime<never>(), FiberRef.unhandledErrorLogLevel, Option.none())
    const serving: Serving = {
      router,
      bodyFormat: yield* Body.BodyFormat,
      batcher: new ResponseBatcher(),
      runFork: Runtime.runFork(runtime),
      nextId: yield* requestIds,
      // Read once, so that in production a request pays nothing for lines that are not logged.
      isDetailed: LogLevel.lessThanEqual(yield* FiberRef.get(FiberRef.currentMinimumLogLevel), LogLevel.Debug),
      isTraced: yield* FiberRef.get(FiberRef.currentTracerEnabled)
    }
    return {
      request: (request, response) =>
        new Exchange(
          serving,
          request,
          () => response,
          undefined,
          leave => {
            response.once("close", () => response.writableEnded || leave())
            return noop
          }
        ).serve(),
      upgrade: (request, socket, head) => {
        // An answer other than the handshake is written as an ordinary response on the connection.
        const response = () => {
          const response = new ServerResponse(request)
          response.assignSocket(socket as never)
          response.shouldKeepAlive = false
          response.once("finish", () => socket.end())
          return response
        }
        const exchange = new Exchange(serving, request, response, { request, socket, head }, leave => {
          socket.once("close", leave)
          // A long-lived WebSocket must not keep the request of its handshake in memory.
          return () => socket.off("close", leave)
        })
        exchange.serve()
      },
      upgradable: target =>
        problemOfTarget(target) === undefined && router.find("GET", pathOf(target))?.value.isSocket === true
    }
  })
