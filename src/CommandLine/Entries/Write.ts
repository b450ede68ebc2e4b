/** Writes that are applied once, however often they are sent. */
import { randomUUID } from "node:crypto"
import { Duration, Effect, Option } from "effect"
import type { ClientError } from "../../EffectClient/Client.ts"
import { type CommandFailed, wrong } from "../CommandFailed.ts"
import type { Connection } from "../Connection.ts"
import * as Failure from "../Failure.ts"
import { Options } from "../Library.ts"
import { Output } from "../Terminal/Output.ts"
import { retryWhileAway } from "../Retrying.ts"

/** The options of every command that writes once. */
export const options = {
  idempotencyKey: Options.text("idempotency-key").pipe(
    Options.withPseudoName("key"),
    Options.withDescription("The Idempotency-Key of this write; a random one without it"),
    Options.optional
  ),
  patience: Options.integer("patience").pipe(
    Options.withPseudoName("seconds"),
    Options.withDescription("How long to try again while the service is away; it is applied once"),
    Options.withDefault(0)
  )
}

/** What the options say. */
export interface Given {
  readonly idempotencyKey: Option.Option<string>
  /** Seconds. */
  readonly patience: number
}

const quoted = (key: string): string => (/^[\w-]+$/.test(key) ? key : `'${key.replaceAll("'", "'\\''")}'`)

/** Writes, and repeats the write with its key while the service is away. The message of a failure tells the key. */
export const once = <A>(
  connection: Connection,
  { idempotencyKey, patience }: Given,
  write: (options: { readonly idempotencyKey: string }) => Effect.Effect<A, ClientError>
): Effect.Effect<A, CommandFailed, Output> =>
  Effect.gen(function* () {
    if (patience < 0) return yield* wrong("--patience must be 0 or more")
    const key = Option.isSome(idempotencyKey) ? idempotencyKey.value : randomUUID()
    const { note } = yield* Output
    return yield* write({ idempotencyKey: key }).pipe(
      retryWhileAway(Duration.seconds(patience), note),
      Effect.mapError(
        Failure.of(connection, `with --idempotency-key ${quoted(key)} it can be repeated, and is applied once`)
      )
    )
  })
