/** Idempotent writes: however often one is sent, it is applied once. */
import { randomUUID } from "node:crypto"
import { Effect, Option } from "effect"
import type { ClientError } from "../../EffectClient/Client.ts"
import type { CommandFailed } from "../CommandFailed.ts"
import type { Connection } from "../Connection.ts"
import * as Failure from "../Failure.ts"
import { Options } from "../Library.ts"
import { numberOption } from "../NumberOption.ts"
import { durationOf, retryWhileUnavailable } from "../Retrying.ts"
import { Output } from "../Terminal/Output.ts"

/** The options of every command with one idempotent write. */
export const options = {
  idempotencyKey: Options.text("idempotency-key").pipe(
    Options.withPseudoName("key"),
    Options.withDescription("The Idempotency-Key of this write; default a random one"),
    Options.optional
  ),
  retryFor: numberOption(
    "retry-for",
    "seconds",
    "How long to retry while the service is unavailable; the write is applied once",
    0
  )
}

/** The values of the options. */
export interface Given {
  readonly idempotencyKey: Option.Option<string>
  /** Seconds. */
  readonly retryFor: number
}

const quoted = (key: string): string => (/^[\w-]+$/.test(key) ? key : `'${key.replaceAll("'", "'\\''")}'`)

/**
 * Runs a write with an idempotency key and retries it while the service is unavailable. The message of a failure with
 * unknown outcome contains the key, so that the user can repeat the write.
 */
export const once = <A>(
  connection: Connection,
  { idempotencyKey, retryFor }: Given,
  write: (options: { readonly idempotencyKey: string }) => Effect.Effect<A, ClientError>
): Effect.Effect<A, CommandFailed, Output> =>
  Effect.gen(function* () {
    const duration = yield* durationOf(retryFor)
    const key = Option.isSome(idempotencyKey) ? idempotencyKey.value : randomUUID()
    const { note } = yield* Output
    return yield* write({ idempotencyKey: key }).pipe(
      retryWhileUnavailable(duration, note),
      Effect.mapError(
        Failure.of(connection, `with --idempotency-key ${quoted(key)} it can be repeated, and is applied once`)
      )
    )
  })
