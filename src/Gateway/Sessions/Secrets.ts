import { Effect, Equal, Redacted } from "effect"
import { SessionsBusy } from "../Sessions.ts"

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

/** Characters of all secrets together; more are refused until sessions with secrets were deleted. */
const most = 256 * 1024 * 1024

/** The secrets of sessions, in memory and nowhere else, from a session's creation to its deletion. */
export const make = () => {
  const bySession = new Map<string, { readonly secrets: Secrets; readonly size: number }>()
  let total = 0

  const forget = (session: string): void => {
    total -= bySession.get(session)?.size ?? 0
    bySession.delete(session)
  }

  return {
    get: (session: string): Secrets => bySession.get(session)?.secrets ?? {},
    /** In place of those that the session had. */
    put: (session: string, secrets: Secrets): Effect.Effect<void, SessionsBusy> =>
      Effect.suspend(() => {
        const size = Object.entries(secrets).reduce(
          (sum, [name, secret]) => sum + name.length + Redacted.value(secret).length,
          0
        )
        const before = bySession.get(session)?.size ?? 0
        if (size > before && total - before + size > most) {
          return new SessionsBusy({ message: "The gateway holds as many secrets as it takes on" })
        }
        forget(session)
        if (size === 0) return Effect.void
        bySession.set(session, { secrets, size })
        total += size
        return Effect.void
      }),
    forget
  }
}

/** See {@link make}. */
export type Vault = ReturnType<typeof make>
