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

/** Memory that a secret takes beside its name and its value, about. */
const overhead = 64

const sizeOf = (secrets: Secrets): number =>
  Object.entries(secrets).reduce(
    (sum, [name, secret]) => sum + overhead + Buffer.byteLength(name) + Buffer.byteLength(Redacted.value(secret)),
    0
  )

/** A session in memory. */
interface Holder {
  /** Whether its secrets are about to be used, and cannot be taken. */
  readonly needsSecrets: boolean
  /** Forgets secrets that it has beside those in the pool. It must not throw. */
  readonly loseSecrets: () => void
}

interface Held {
  readonly secrets: Secrets
  readonly claim: Claim
  /** With what the node owned the session. */
  readonly token: number | undefined
}

/**
 * The secrets of all sessions, in memory and nowhere else, from a session's creation to its deletion. Keys are those of
 * the sessions, `<tenant>/<id>`.
 *
 * Where the memory is full, the oldest secrets of the tenant that has the most are dropped for another tenant's. Their
 * sessions lack them then as after a restart.
 */
export class SecretPool {
  private readonly bySession = new Map<string, Held>()
  private readonly pool: FairPool
  private dropped = 0

  constructor(
    /** In bytes. */
    capacity: number,
    private readonly holderOf: (session: string) => Holder | undefined,
    /** With what this node owns a session: secrets from before another one had it may not be those that it has now. */
    private readonly tokenOf: (session: string) => number | undefined = () => undefined
  ) {
    this.pool = new FairPool({ name: "memory for secrets", capacity })
  }

  get(session: string): Secrets {
    const held = this.bySession.get(session)
    return held === undefined || held.token !== this.tokenOf(session) ? {} : held.secrets
  }

  /** The sessions that have any. */
  sessions(): ReadonlyArray<string> {
    return [...this.bySession.keys()]
  }

  /** Whether a session has any. */
  has(session: string): boolean {
    return this.bySession.has(session)
  }

  /** Replaces the secrets of a session, which are valid while the node owns it with the token. */
  put(session: string, secrets: Secrets, token = this.tokenOf(session)): Effect.Effect<void, SessionsBusy> {
    return Effect.suspend(() => {
      const size = sizeOf(secrets)
      if (size === 0) {
        this.forget(session)
        return Effect.void
      }
      const claim = this.claim(session, size)
      if (claim === undefined) return Effect.fail(this.pool.refusal())
      claim.offer({
        isReclaimable: () => this.holderOf(session)?.needsSecrets !== true,
        onReclaim: () => this.drop(session)
      })
      this.bySession.set(session, { secrets, claim, token })
      return this.logDropped()
    })
  }

  /** Forgets the secrets of a session, or those alone that came with a token. */
  forget(session: string, token?: number): void {
    const known = this.bySession.get(session)
    if (known === undefined || (token !== undefined && known.token !== token)) return
    this.bySession.delete(session)
    known.claim.release()
  }

  private drop(session: string): void {
    this.bySession.delete(session)
    this.holderOf(session)?.loseSecrets()
    this.dropped++
  }

  private claim(session: string, size: number): Claim | undefined {
    const known = this.bySession.get(session)
    if (known === undefined) return this.pool.take(session.slice(0, session.indexOf("/")), size)
    return known.claim.resize(size) ? known.claim : undefined
  }

  private logDropped(): Effect.Effect<void> {
    const sessions = this.dropped
    this.dropped = 0
    return sessions === 0
      ? Effect.void
      : Effect.logWarning("Secrets of the tenant that has the most were given up, as others needed the memory").pipe(
          Effect.annotateLogs({ sessions })
        )
  }
}
