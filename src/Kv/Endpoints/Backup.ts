/** The handler of backups: a copy of the whole store as a file. */

import { type Context, Duration, Effect, Exit, Scope, Stream } from "effect"
import { MiB } from "../../base/Bytes.ts"
import {
  type ApiError,
  Forbidden,
  InsufficientStorage,
  NotImplemented,
  ServiceUnavailable
} from "../../Http/ApiError.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import * as Reply from "../../Http/Reply.ts"
import { epochHeader } from "../Requests.ts"
import type { BackupRefused, Store, StoreBackup, StoreBusy, StoreUnavailable } from "../Store.ts"
import * as Operations from "./Operations.ts"

/** The registered media type of a SQLite database. */
const contentType = "application/vnd.sqlite3"

/**
 * How long a client may take to read a copy, which occupies the disk until then: a minute, and a second for each MiB.
 */
export const timeFor = (bytes: number): Duration.Duration => Duration.seconds(60 + bytes / MiB)

const failed = (error: BackupRefused | StoreBusy | StoreUnavailable): Effect.Effect<never, ApiError> => {
  switch (error._tag) {
    case "BackupRefused":
      return error.cause === "NoRoom"
        ? new InsufficientStorage({ error: error.message })
        : new NotImplemented({ error: error.message })
    case "StoreBusy":
      return ServiceUnavailable.later("Another backup is being made or sent", error.retryAfterSeconds)
    case "StoreUnavailable":
      return Operations.unavailable(error)
  }
}

const headersOf = ({ bytes, epoch, lastSeq, sha256 }: StoreBackup) => ({
  "content-length": String(bytes),
  "content-disposition": `attachment; filename="causeway-${lastSeq}.db"`,
  "cache-control": "no-store",
  // RFC 9530.
  "repr-digest": `sha-256=:${Buffer.from(sha256, "hex").toString("base64")}:`,
  "kv-last-seq": String(lastSeq),
  [epochHeader]: epoch
})

/** The bytes of a copy. They fail if the client takes too long. */
const contentOf = ({ bytes, content }: StoreBackup): Stream.Stream<Uint8Array> => {
  const limit = timeFor(bytes)
  const tooSlow = Effect.die(new Error(`The client has not read the backup within ${Duration.format(limit)}`))
  return Stream.orDie(content).pipe(Stream.interruptWhen(Effect.zipRight(Effect.sleep(limit), tooSlow)))
}

/** Sends a copy, once it is complete. It has the entries of all tenants, so that no tenant may request it. */
export const make =
  ({ store }: { readonly store: Context.Tag.Service<Store> }) =>
  ({ incoming }: { readonly incoming: Incoming }): Effect.Effect<Reply.Reply, ApiError> => {
    if (incoming.identity?.tenant !== undefined) {
      return new Forbidden({ error: "Forbidden: a backup has the entries of all tenants" })
    }
    // The body of HEAD is not sent, so that no copy is made.
    if (incoming.method === "HEAD") {
      return Effect.scoped(store.backup).pipe(
        Effect.as(Reply.empty(200, { "content-type": contentType, "cache-control": "no-store" })),
        Effect.catchAll(failed)
      )
    }
    return Effect.uninterruptibleMask(restore =>
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const backup = yield* restore(
          Scope.extend(
            Effect.flatMap(store.backup, ({ copy }) => copy),
            scope
          )
        ).pipe(
          Effect.onError(cause => Scope.close(scope, Exit.failCause(cause))),
          Effect.catchAll(failed)
        )
        const { bytes, lastSeq } = backup
        yield* Effect.annotateLogs(Effect.logInfo("A backup of the store is sent"), { bytes, lastSeq })
        return Reply.stream(contentType, contentOf(backup), headersOf(backup), Scope.close(scope, Exit.void))
      })
    )
  }
