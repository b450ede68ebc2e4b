/** Who uses the shop. */
import { ApiError, type Identity } from "causewayd"
import { Context, Effect, Layer } from "effect"

export class Users extends Context.Tag("shop/Users")<
  Users,
  { readonly byToken: (token: string) => Effect.Effect<Identity.IdentityShape | undefined> }
>() {}

const known = new Map<string, Identity.IdentityShape>([
  ["anna-token", { access: "write", actor: "anna", tenant: "shop" }],
  ["guest-token", { access: "read", actor: "guest", tenant: "shop" }]
])

export const layer = Layer.succeed(Users, { byToken: token => Effect.sync(() => known.get(token)) })

/** The one authentication of the shop: of requests, of the change feed and of the gateway's clients. */
export const identity = ({ credential = "" }: Identity.Credentials) =>
  Effect.gen(function* () {
    const { byToken } = yield* Users
    const user = yield* byToken(credential.replace(/^Bearer /i, ""))
    return user ?? (yield* new ApiError.Unauthorized({ error: "Sign in to the shop" }))
  })
