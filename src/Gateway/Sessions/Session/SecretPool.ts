/** The secrets of all sessions, in memory only. */
import { Effect, Equal, Redacted } from "effect"
import { type Claim, FairPool } from "../../FairPool.ts"
import type { SessionsBusy } from "../../Sessions.ts"

/** Secrets of a session, by name. */
export type Secrets = Readonly<Record<string, Redacted.Redacted>>

/** Whether two sets of secrets have the same names and values. */
export const isSame = (a: Secrets, b: Secrets): boolean => {
  const names = Object.keys(a)
  return (
    names.length === Object.keys(b).length &&
    names.every(name => Object.hasOwn(b, name) && Equal.equals(a[name], b[name]))
  )
}

/** Approximate memory overhead of a secret, in bytes. */
const overhead = 64

const sizeOf = (secrets: Secrets): number =>
  Object.entries(secrets).reduce(
    (sum, [name, secret]) => sum + overhead + Buffer.byteLength(name) + Buffer.byteLength(Redacted.value(secret)),
    0
  )

/** A session in memory. */
interface Holder {
  /** Whether its secrets are about to be used and cannot be evicted. */
  readonly needsSecrets: boolean
  /** Forgets its own copies of secrets. Must not throw. */
  readonly loseSecrets: () => void
}

interface Held {
  readonly secrets: Secrets
  readonly claim: Claim
  /** The fencing token with which the node owned the session. */
  readonly token: number | undefined
}

/**
 * The secrets of all sessions, in memory only, from a session's creation to its deletion. Keys are `<tenant>/<id>`.
 *
 * If the memory is full, the oldest secrets of the tenant that has the most are evicted for another tenant's. Their
 * sessions lack them then, as after a restart.
 */
export class SecretPool {
  private readonly bySession = new Map<string, Held>()
  private readonly pool: FairPool
  private dropped = 0

  constructor(
    /** Maximum bytes of all secrets. */
    capacity: number,
    private readonly holderOf: (session: string) => Holder | undefined,
    /** The fencing token of a session. Secrets with an older token may be stale: another node may have replaced them. */
    private readonly tokenOf: (session: string) => number | undefined = () => undefined
  ) {
    this.pool = new FairPool({ name: "memory for secrets", capacity })
  }

  get(session: string): Secrets {
    const held = this.bySession.get(session)
    return held === undefined || held.token !== this.tokenOf(session) ? {} : held.secrets
  }

  /** The sessions that have secrets. */
  sessions(): ReadonlyArray<string> {
    return [...this.bySession.keys()]
  }

  /** Whether a session has secrets. */
  has(session: string): boolean {
    return this.bySession.has(session)
  }

  /** Replaces the secrets of a session. They are valid while the node owns it with the token. */
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

  /** Forgets the secrets of a session, or only those with a token. */
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
      : Effect.logWarning(
          "Secrets of the tenant that has the most were evicted, because others needed the memory"
        ).pipe(Effect.annotateLogs({ sessions }))
  }
}
