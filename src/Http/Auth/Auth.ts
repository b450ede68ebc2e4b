/** Authentication of requests: by API keys, or by a function of the host. */
import { timingSafeEqual } from "node:crypto"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Config, type Context, Effect, Exit, Layer, Option, Redacted } from "effect"
import * as Direct from "../../base/Direct.ts"
import * as Setting from "../../base/Setting.ts"
import { Forbidden, Unauthorized } from "../ApiError.ts"
import type { Guard } from "../Endpoints.ts"
import { type Access, Auth, type Credentials, type Identify, type IdentityShape, type Refusal } from "../Identity.ts"
import { ofPlatform } from "../Incoming.ts"
import { ReadAccess, WriteAccess } from "./Api.ts"

export { Auth }

/** The two credentials. An absent or empty one matches nothing. */
export interface Keys {
  /** Reads and writes. */
  readonly write: Option.Option<Redacted.Redacted>
  /** Only reads. */
  readonly read: Option.Option<Redacted.Redacted>
}

export const config: Config.Config<Keys> = Config.all({
  write: Setting.optionalCredential("KV_API_KEY", {
    description: "Credential that reads and writes; required outside dev mode"
  }),
  read: Setting.optionalCredential("KV_AGENT_API_KEY", {
    description: "Credential that only reads; none if empty"
  })
})

/** A bearer header (RFC 6750); the scheme is case-insensitive (RFC 9110, 11.1). */
const bearer = /^bearer +([^\s]+) *$/i

/**
 * Compares in constant time. The compared buffers always have the length of the key. Whether the lengths are equal is
 * checked afterwards.
 */
const matcher = (key: Option.Option<Redacted.Redacted>): ((token: string) => boolean) => {
  const expected = Buffer.from(Option.match(key, { onNone: () => "", onSome: Redacted.value }))
  if (expected.length === 0) return () => false
  const given = Buffer.alloc(expected.length)
  return token => {
    const length = Buffer.byteLength(token)
    const written = given.write(token)
    // `write` omits a character that does not fit as a whole.
    given.fill(0, written)
    return timingSafeEqual(given, expected) && length === expected.length
  }
}

/** The permission that the keys give to an `Authorization` header, or `undefined`. */
export const accessBy = (keys: Keys): ((authorization: string | undefined) => Access | undefined) => {
  const mayWrite = matcher(keys.write)
  const mayRead = matcher(keys.read)
  return authorization => {
    const token = authorization === undefined ? undefined : bearer.exec(authorization)?.[1]
    if (token === undefined) return undefined
    const [writes, reads] = [mayWrite(token), mayRead(token)]
    return writes ? "write" : reads ? "read" : undefined
  }
}

const holders: Readonly<Record<Access, Exit.Exit<IdentityShape>>> = {
  read: Exit.succeed({ access: "read" }),
  write: Exit.succeed({ access: "write" })
}

/** Authenticates by API keys, which have no actor and are not limited to a tenant. */
export const byKeys = (keys: Keys): Identify => {
  const accessOf = accessBy(keys)
  return ({ credential }) => {
    const access = accessOf(credential)
    return access === undefined ? Exit.fail(Unauthorized.answer()) : holders[access]
  }
}

/** Authenticates by API keys. */
export const layer = (keys: Keys): Layer.Layer<Auth> => Layer.succeed(Auth, { identify: byKeys(keys) })

/**
 * An invalid identity from a host is a defect, so that the request is refused. An empty tenant would receive the changes
 * of all tenants, and a tenant with a slash would match another tenant's namespace.
 */
const checked = (identified: Exit.Exit<IdentityShape, Refusal>): Exit.Exit<IdentityShape, Refusal> => {
  if (Exit.isFailure(identified)) return identified
  const { access, tenant } = identified.value
  if (access !== "read" && access !== "write") {
    return Exit.die(new Error(`The access of an identity is "read" or "write", not ${JSON.stringify(access)}`))
  }
  return tenant === undefined || (tenant !== "" && /^[^/\0]+$/.test(tenant) && tenant.isWellFormed())
    ? identified
    : Exit.die(new Error(`${JSON.stringify(tenant)} cannot be the tenant of an identity`))
}

/** Authenticates by a function of the host, which may use services of the context. */
export const layerIdentity = <R>(identify: Identify<R>): Layer.Layer<Auth, never, R> =>
  Layer.effect(
    Auth,
    Effect.map(Effect.context<R>(), context => ({
      identify: (request: Credentials) => {
        let identified: ReturnType<Identify<R>>
        try {
          identified = identify(request)
        } catch (error) {
          return Exit.die(error)
        }
        // An identity that is known at once costs only a function call.
        const exit = Direct.exitOf(identified)
        return exit === undefined
          ? Direct.flatMap(Direct.provide(identified, context), identity => checked(Exit.succeed(identity)))
          : checked(exit)
      }
    }))
  )

const forbidden = () => Exit.fail(new Forbidden({ error: "Forbidden" }))

/** Admits identities with the access; others are answered 403. */
const admitting = (auth: Context.Tag.Service<Auth>, wanted: Access) => {
  const admits = ({ access }: IdentityShape): boolean => access === wanted || access === "write"
  return (request: Credentials): ReturnType<Identify> => {
    const identified = auth.identify(request)
    const exit = Direct.exitOf(identified)
    if (exit === undefined) {
      return Direct.flatMap(identified, identity => (admits(identity) ? Exit.succeed(identity) : forbidden()))
    }
    return Exit.isFailure(exit) || admits(exit.value) ? exit : forbidden()
  }
}

/** The middlewares as `Http/Edge` runs them. */
export const guards: Effect.Effect<ReadonlyArray<Guard<ReadAccess | WriteAccess>>, never, Auth> = Effect.map(
  Auth,
  auth => [
    { middleware: ReadAccess, admit: admitting(auth, "read") },
    { middleware: WriteAccess, admit: admitting(auth, "write") }
  ]
)

const middleware = (auth: Context.Tag.Service<Auth>, wanted: Access) => {
  const admit = admitting(auth, wanted)
  // The decoded token is not used: the platform's decoder removes seven characters whatever the scheme.
  return { bearer: () => Effect.flatMap(HttpServerRequest.HttpServerRequest, request => admit(ofPlatform(request))) }
}

/** The middlewares as @effect/platform runs them. */
export const middlewares: Layer.Layer<ReadAccess | WriteAccess, never, Auth> = Layer.mergeAll(
  Layer.effect(
    ReadAccess,
    Effect.map(Auth, auth => middleware(auth, "read"))
  ),
  Layer.effect(
    WriteAccess,
    Effect.map(Auth, auth => middleware(auth, "write"))
  )
)
