import { Effect, Equal, Redacted } from "effect"
import { type Claim, FairPool } from "../FairPool.ts"
import type { SessionsBusy } from "../Sessions.ts"

/** Secrets of a session, by name. */
export type Secrets = Readonly<Record<string, Redacted.Redacted>>

/** Whether two sets of secrets are the same, each by name and value. */
export const isSame = (a: Secrets, b: Secrets): boolean => {
  const names = Object.keys(a)
  return (
    names.length === Object.keys(b).length &&
    names.every(name => Object.hasOwn(b, name) && Equal.equals(a[name], b[name]))
  )
}

/** Those who use secrets. Neither method may throw. */
interface Users {
  /** Whether a session's are about to be used, and cannot be taken. */
  readonly needsSecrets: (session: string) => boolean
  readonly loseSecrets: (session: string) => void
}

const nobody: Users = { needsSecrets: () => false, loseSecrets: () => {} }

/** Memory that a secret takes beside its name and its value, about. */
const overhead = 64

/** Bytes that secrets count with. */
const sizeOf = (secrets: Secrets): number =>
  Object.entries(secrets).reduce(
    (sum, [name, secret]) => sum + overhead + Buffer.byteLength(name) + Buffer.byteLength(Redacted.value(secret)),
    0
  )

/**
 * The secrets of sessions, in memory and nowhere else, from a session's creation to its deletion.
 *
 * Where the memory for them is full, those of the tenant that has the most give way to another tenant's, the ones that
 * were given longest ago first. Their sessions miss them then as after a restart.
 *
 * @param capacity bytes of all secrets together
 * @param users who have secrets in use, by the key of the session, `<tenant>/<id>`
 */
export const make = (capacity: number, users: Users = nobody) => {
  const bySession = new Map<string, { readonly secrets: Secrets; readonly claim: Claim }>()
  /** The sessions of each tenant that have secrets, in the order in which they were given. */
  const byTenant = new Map<string, Set<string>>()
  let taken = 0

  const forget = (session: string): void => {
    const known = bySession.get(session)
    if (known === undefined) return
    bySession.delete(session)
    const { holder } = known.claim
    const sessions = byTenant.get(holder)
    sessions?.delete(session)
    if (sessions?.size === 0) byTenant.delete(holder)
    known.claim.release()
  }

  const pool = new FairPool({
    name: "memory for secrets",
    capacity,
    takeBack: tenant => {
      for (const session of byTenant.get(tenant) ?? []) {
        if (users.needsSecrets(session)) continue
        forget(session)
        users.loseSecrets(session)
        taken++
        return true
      }
      return false
    }
  })

  /** Room for so much of a session's, in place of what it has. */
  const claimOf = (session: string, size: number): Claim | undefined => {
    const known = bySession.get(session)
    if (known === undefined) return pool.take(session.slice(0, session.indexOf("/")), size)
    return known.claim.resize(size) ? known.claim : undefined
  }

  const tellTaken = Effect.suspend(() => {
    const sessions = taken
    taken = 0
    return sessions === 0
      ? Effect.void
      : Effect.logWarning("Secrets of the tenant that has the most were given up, as others needed the memory").pipe(
          Effect.annotateLogs({ sessions })
        )
  })

  return {
    get: (session: string): Secrets => bySession.get(session)?.secrets ?? {},
    /** In place of those that the session had. */
    put: (session: string, secrets: Secrets): Effect.Effect<void, SessionsBusy> =>
      Effect.suspend(() => {
        const size = sizeOf(secrets)
        if (size === 0) {
          forget(session)
          return Effect.void
        }
        const claim = claimOf(session, size)
        if (claim === undefined) return Effect.fail(pool.refusal())
        const sessions = byTenant.get(claim.holder) ?? new Set()
        sessions.delete(session)
        byTenant.set(claim.holder, sessions.add(session))
        bySession.set(session, { secrets, claim })
        return tellTaken
      }),
    forget
  }
}

/** See {@link make}. */
export type Vault = ReturnType<typeof make>
