/**
 * What the identity of a request allows in the key-value store: a tenant limits it to the namespaces and the changes of
 * that tenant, and an actor is recorded whatever author the client names.
 */
import { Either } from "effect"
import { Forbidden } from "../Http/ApiError.ts"
import type { IdentityShape } from "../Http/Identity.ts"
import { problemOfActor, tenantOf } from "./Entry.ts"

/** Who sends a request; `undefined` where nobody has asked. */
export type Sender = IdentityShape | undefined

const refused = (tenant: string, at: string) =>
  Either.left(
    new Forbidden({
      error: `Forbidden: ${at}namespace is not tenant:${tenant}, nor does it begin with tenant:${tenant}/`
    })
  )

/** Refuses a namespace of another tenant. `at` is the path of the name in the request, as in `operations[3].`. */
export const checkNamespace = (sender: Sender, namespace: string, at = ""): Either.Either<void, Forbidden> => {
  const tenant = sender?.tenant
  return tenant === undefined || tenantOf(namespace) === tenant ? Either.void : refused(tenant, at)
}

/** The tenant whose changes a request follows, `""` for all. Where the identity has one, the client may ask for no other. */
export const followed = (sender: Sender, asked: string): Either.Either<string, Forbidden> => {
  const tenant = sender?.tenant
  if (tenant === undefined || asked === tenant) return Either.right(asked)
  return asked === ""
    ? Either.right(tenant)
    : Either.left(new Forbidden({ error: `Forbidden: tenant is not ${tenant}` }))
}

/** The actor of the identity. One that cannot be recorded is a mistake of the host, and a defect. */
export const actorOf = (sender: Sender, maxBytes: number): string | undefined => {
  const actor = sender?.actor
  if (actor === undefined || actor === "") return undefined
  const problem = problemOfActor(actor, maxBytes)
  if (problem !== undefined) throw new Error(`The identity's ${problem}`)
  return actor
}
