/**
 * The id of a node, which is new for each run. The directory of the node stores it. As only one process has the lock of
 * the directory, the next run knows that this one has ended, unless the directory is a copy.
 */
import { randomUUID } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Option, type Scope } from "effect"
import { UnknownException } from "effect/Cause"
import { messageOf } from "../../../base/ErrorMessage.ts"
import { makeDirectory } from "../../FileSystem.ts"
import { StoreRefused } from "../Database/DatabaseError.ts"

/** The ids of this run and of the one before it. */
export interface NodeIdentity {
  readonly id: string
  /** The id of the last run in the directory, which has ended unless the directory is a copy. */
  readonly predecessor: Option.Option<string>
}

const pattern = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

const readId = (file: string): Option.Option<string> =>
  Option.filter(Option.liftThrowable(() => readFileSync(file, "utf8").trim())(), text => pattern.test(text))

const withoutDirectory = (): NodeIdentity => ({ id: randomUUID(), predecessor: Option.none() })

/**
 * An id for this run. Fails if another process has the directory. If the directory cannot be used, for example because
 * it can only be read, the id is not stored. The sessions of this run then stay its own until its lease has ended.
 */
export const make = (directory: string | undefined): Effect.Effect<NodeIdentity, StoreRefused, Scope.Scope> => {
  if (directory === undefined) return Effect.sync(withoutDirectory)
  const remembered = Effect.gen(function* () {
    // It loads SQLite, which hosts without a directory do not need.
    const { isLockedByAnother, Lock } = yield* Effect.tryPromise(() => import("../../Sqlite/Database/Files.ts"))
    const file = join(directory, "node.lock")
    yield* Effect.acquireRelease(
      Effect.try({
        try: () => {
          makeDirectory(directory)
          return new Lock(file)
        },
        catch: error =>
          isLockedByAnother(error)
            ? new StoreRefused({
                message:
                  `${file} is locked: another process has this directory, and it belongs to one process at a time. ` +
                  "End that process, or use another directory (DATA_DIR of the service)"
              })
            : new UnknownException(error)
      }),
      lock => Effect.sync(() => lock.close())
    )
    return yield* Effect.try((): NodeIdentity => {
      const file = join(directory, "node.id")
      const predecessor = readId(file)
      const id = randomUUID()
      writeFileSync(file, `${id}\n`, { mode: 0o600 })
      return { id, predecessor }
    })
  })
  return Effect.catchTag(remembered, "UnknownException", ({ error }) =>
    Effect.as(
      Effect.annotateLogs(Effect.logInfo("The directory of the node cannot remember its id"), {
        directory,
        reason: messageOf(error)
      }),
      withoutDirectory()
    )
  )
}
