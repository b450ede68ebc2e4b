import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Effect, Layer } from "effect"
import { Forbidden, Unauthorized } from "../Http/ApiError.ts"
import { authorizationOfPlatform } from "../Http/Authorization.ts"
import type { Guard } from "../Http/Endpoints.ts"
import { ReadAccess, WriteAccess } from "./Api.ts"
import { type Access, Auth } from "./Auth.ts"

/** The error for a request that may not read, or `undefined`. */
const refusalToRead = (access: Access | undefined): Unauthorized | undefined =>
  access === undefined ? Unauthorized.answer() : undefined

/** The error for a request that may not write, or `undefined`. */
const refusalToWrite = (access: Access | undefined): Unauthorized | Forbidden | undefined =>
  access === "read" ? new Forbidden({ error: "Forbidden" }) : refusalToRead(access)

const admit = <E>(auth: typeof Auth.Service, refusal: (access: Access | undefined) => E | undefined) =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, request => {
    const refused = refusal(auth.accessOf(authorizationOfPlatform(request)))
    return refused === undefined ? Effect.void : Effect.fail(refused)
  })

/** The middlewares as the compiled edge runs them. */
export const guards: Effect.Effect<ReadonlyArray<Guard>, never, Auth> = Effect.map(Auth, auth => [
  { key: ReadAccess.key, contains: [], refusal: header => refusalToRead(auth.accessOf(header)) },
  { key: WriteAccess.key, contains: [ReadAccess.key], refusal: header => refusalToWrite(auth.accessOf(header)) }
])

/** The middlewares as @effect/platform runs them. */
export const layer: Layer.Layer<ReadAccess | WriteAccess, never, Auth> = Layer.mergeAll(
  // The decoded token is not used: the platform's decoder removes seven characters whatever the scheme.
  Layer.effect(
    ReadAccess,
    Effect.map(Auth, auth => ({ bearer: () => admit(auth, refusalToRead) }))
  ),
  Layer.effect(
    WriteAccess,
    Effect.map(Auth, auth => admit(auth, refusalToWrite))
  )
)
