import { Clock, Effect } from "effect"
import { SignJWT } from "jose"

/** The secret that gateways under test verify tokens with. */
export const secret = "a secret of at least thirty-two bytes"

/** A token that is valid until a time in epoch seconds. */
export const tokenUntil = (seconds: number, tenant: string, sub = "tester", signedWith = secret): Promise<string> =>
  new SignJWT({ tenant, sub })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime(seconds)
    .sign(new TextEncoder().encode(signedWith))

/** A token that is valid for an hour. */
export const token = (tenant: string, sub = "tester", signedWith = secret): Effect.Effect<string> =>
  Effect.flatMap(Clock.currentTimeMillis, now =>
    Effect.promise(() => tokenUntil(Math.floor(now / 1000) + 3600, tenant, sub, signedWith))
  )
