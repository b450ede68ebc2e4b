/** Root may do everything: what the system forbids to others shows only to another user. */
import { Effect, type Scope } from "effect"

const unprivileged = 65534

/** Until the scope closes this process is another user, if it is root. */
export const become: Effect.Effect<void, never, Scope.Scope> = Effect.acquireRelease(
  Effect.sync(() => {
    const isRoot = process.geteuid?.() === 0
    if (isRoot) process.seteuid?.(unprivileged)
    return isRoot
  }),
  isRoot => Effect.sync(() => isRoot && process.seteuid?.(0))
).pipe(Effect.asVoid)
