/** The data directory of a command. */
import { Effect, Option } from "effect"
import * as StoreUrl from "../../Storage/StoreUrl.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import { Options } from "../Library.ts"

/** The option `--data-dir`. */
export const option = Options.text("data-dir").pipe(
  Options.withPseudoName("directory"),
  Options.withDescription("The data directory; default that of STORE_URL and DATA_DIR"),
  Options.optional
)

/** The given directory, or that of the environment. Fails if the store of the environment is in PostgreSQL. */
export const resolve = (given: Option.Option<string>): Effect.Effect<string, CommandFailed> =>
  Option.match(given, {
    onSome: directory => (directory === "" ? wrong("--data-dir is empty") : Effect.succeed(directory)),
    onNone: () =>
      Effect.mapError(StoreUrl.config, error => wrong(String(error))).pipe(
        Effect.flatMap(({ directory, postgres }) =>
          Option.isNone(postgres)
            ? Effect.succeed(directory)
            : failed(
                "The store of STORE_URL is in PostgreSQL.",
                "pg_basebackup and pg_dump back it up, see docs/postgresql.md; causeway migrate-store copies it into SQLite. --data-dir names a directory."
              )
        )
      )
  })
