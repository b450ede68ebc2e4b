/**
 * The id of a node, which is new for each run. The directory of the node stores it. As only one process has the lock of
 * the directory, the next run knows that this one has ended, unless the directory is a copy.
 */
import { randomUUID } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Option, type Scope } from "effect"
import { messageOf } from "../../../ErrorMessage.ts"
import { makeDirectory } from "../../FileSystem.ts"

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
 * An id for this run. If the directory cannot be used, for example because another node uses it, the id is not stored.
 * The sessions of this run then stay its own until its lease has ended.
 */
export const make = (directory: string | undefined): Effect.Effect<NodeIdentity, never, Scope.Scope> => {
  if (directory === undefined) return Effect.sync(withoutDirectory)
  const remembered = Effect.gen(function* () {
    // It loads SQLite, which hosts without a directory do not need.
    const { Lock } = yield* Effect.tryPromise(() => import("../../DirectoryLock.ts"))
    yield* Effect.acquireRelease(
      Effect.try(() => {
        makeDirectory(directory)
        return new Lock(join(directory, "node.lock"))
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
  return Effect.catchAll(remembered, ({ error }) =>
    Effect.as(
      Effect.annotateLogs(Effect.logInfo("The directory of the node cannot remember its id"), {
        directory,
        reason: messageOf(error)
      }),
      withoutDirectory()
    )
  )
}
