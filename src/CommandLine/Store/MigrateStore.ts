/** `causeway migrate-store`: copies the store from SQLite into PostgreSQL, or back. */
import { Effect, Option } from "effect"
import type { Copied, Location, Progress } from "../../Storage/StoreCopy.ts"
import * as StoreUrl from "../../Storage/StoreUrl.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import { text } from "../CommandOptions.ts"
import * as Connection from "../Connection.ts"
import { Command } from "../Library.ts"
import { answer } from "../Terminal/Output.ts"
import { formOf, reporter } from "../Terminal/Progress.ts"

/** A finished copy as text. */
export const summary = ({ epoch, from, isRestarted, tables, to }: Copied): string =>
  [
    ...(isRestarted ? ["An unfinished copy existed and was started again."] : []),
    ...tables.map(
      ({ digest, rows, table }) => `${table.padEnd(22)}${rows.toLocaleString("en").padStart(15)} rows  ${digest}`
    ),
    `Copied ${from} to ${to}, and verified it.`,
    `The change log has the new epoch ${epoch}: its readers list again.`,
    ""
  ].join("\n")

/** Whether the address of a database contains a password, before the host or as a parameter. */
const hasPassword = (text: string): boolean => {
  const { password, searchParams } = new URL(text)
  return password !== "" || searchParams.has("password")
}

/** The location of a store. Messages do not quote the value, which may contain a password. */
const locate = (option: string, text: string): Effect.Effect<Location, CommandFailed> =>
  Option.match(StoreUrl.locate(text), {
    onNone: () => wrong(`${option} is not sqlite:<path of a directory> or postgres://<user>@<host>:<port>/<database>.`),
    onSome: location =>
      Option.isSome(location.postgres) && hasPassword(text)
        ? wrong(
            `${option} must not have a password, as every user of the machine can see the arguments of programs. Leave ${option} out and give the address by the variable STORE_URL, or give the password by PGPASSWORD or in the file that PGPASSFILE names (~/.pgpass without it).`
          )
        : Effect.succeed(location)
  })

/** The location of a store, by default that of the environment. */
const storeOf = (option: string, given: Option.Option<string>) =>
  Option.match(given, {
    onNone: () => Effect.mapError(StoreUrl.config, error => wrong(String(error))),
    onSome: text => locate(option, text)
  })

const storeOption = (name: string, description: string) =>
  text(name, `${description}; default the store of STORE_URL`, "store")

/** `causeway migrate-store`. */
export const command = Command.make(
  "migrate-store",
  {
    from: storeOption("from", "The store to copy: sqlite:<directory> or postgres://<user>@<host>/<database>"),
    to: storeOption("to", "The store to copy to"),
    json: Connection.options.json
  },
  ({ from, json, to }) =>
    Effect.gen(function* () {
      if (Option.isNone(from) && Option.isNone(to)) {
        return yield* wrong(
          "migrate-store requires --from or --to, or both. The default of each is the store of STORE_URL."
        )
      }
      const locations = { from: yield* storeOf("--from", from), to: yield* storeOf("--to", to) }
      const ofRows = ({ rows, totalRows }: Progress) => ({ done: rows, total: totalRows })
      // It needs the native module of SQLite.
      const StoreCopy = yield* Effect.promise(() => import("../../Storage/StoreCopy.ts"))
      const copied = yield* reporter(formOf(json), "rows", ofRows).pipe(
        Effect.flatMap(report => StoreCopy.copy({ ...locations, report })),
        Effect.catchTags({
          StoreCopyRefused: ({ message }) => failed(`Nothing was copied. ${message}`),
          StoreCopyFailed: ({ message }) =>
            failed(`The copy was not finished, and its target is not served: run the command again. ${message}`)
        }),
        Effect.scoped
      )
      yield* answer(json, { type: "done", ...copied }, () => summary(copied))
    })
).pipe(Command.withDescription("Copy a store that no service uses from SQLite into PostgreSQL, or back"))
