import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Effect, Layer } from "effect"
import { Forbidden, Unauthorized } from "../Http/ApiError.ts"
import { authorizationOfPlatform } from "../Http/Authorization.ts"
import { ReadAccess, WriteAccess } from "./Api.ts"
import { type Access, Auth } from "./Auth.ts"

/** Why a request with this access may not read, or `undefined`. */
export const refusalToRead = (access: Access | undefined): Unauthorized | undefined =>
  access === undefined ? Unauthorized.answer() : undefined

/** Why a request with this access may not write, or `undefined`. */
export const refusalToWrite = (access: Access | undefined): Unauthorized | Forbidden | undefined =>
  access === "read" ? new Forbidden({ error: "Forbidden" }) : refusalToRead(access)

const admit = <E>(auth: typeof Auth.Service, refusal: (access: Access | undefined) => E | undefined) =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, request => {
    const refused = refusal(auth.accessOf(authorizationOfPlatform(request)))
    return refused === undefined ? Effect.void : Effect.fail(refused)
  })

/** The middlewares that stand before the endpoints. */
export const layer: Layer.Layer<ReadAccess | WriteAccess, never, Auth> = Layer.mergeAll(
  // The decoded token is left alone: the decoder cuts seven characters off whatever scheme there is.
  Layer.effect(
    ReadAccess,
    Effect.map(Auth, auth => ({ bearer: () => admit(auth, refusalToRead) }))
  ),
  Layer.effect(
    WriteAccess,
    Effect.map(Auth, auth => admit(auth, refusalToWrite))
  )
)
