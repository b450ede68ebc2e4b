/**
 * `causeway migrate-store`: copies the store from SQLite into PostgreSQL, or back.
 */
import { Effect, Option, Schema } from "effect"
import * as StoreCopy from "../../Storage/StoreCopy.ts"
import * as StoreUrl from "../../Storage/StoreUrl.ts"
import * as CopyProgress from "./CopyProgress.ts"

/** The arguments of the command. An absent store is that of `STORE_URL`. */
export interface Arguments {
  readonly from: Option.Option<string>
  readonly to: Option.Option<string>
  /** Print progress as JSON lines on standard output. */
  readonly json: boolean
  /** Print the finished copy as a line of JSON. */
  readonly isRecord: boolean
}

/** The arguments do not name two stores; the message says why. */
export class WrongStores extends Schema.TaggedError<WrongStores>()("WrongStores", { message: Schema.String }) {}

/** Whether the address of a database contains a password, before the host or as a parameter. */
const hasPassword = (text: string): boolean => {
  const { password, searchParams } = new URL(text)
  return password !== "" || searchParams.has("password")
}

/** The location of a store. Messages do not quote the value, which may contain a password. */
const locate = (option: string, text: string) =>
  Option.match(StoreUrl.locate(text), {
    onNone: () =>
      new WrongStores({
        message: `${option} is not sqlite:<path of a directory> or postgres://<user>@<host>:<port>/<database>.`
      }),
    onSome: location =>
      Option.isSome(location.postgres) && hasPassword(text)
        ? new WrongStores({
            message: `${option} must not have a password, as every user of the machine can see the arguments of programs. Leave ${option} out and give the address by the variable STORE_URL, or give the password by PGPASSWORD or in the file that PGPASSFILE names (~/.pgpass without it).`
          })
        : Effect.succeed(location)
  })

const ofEnvironment = Effect.mapError(StoreUrl.config, error => new WrongStores({ message: String(error) }))

const storeOf = (option: string, given: Option.Option<string>) =>
  Option.match(given, { onNone: () => ofEnvironment, onSome: text => locate(option, text) })

/** Copies a store and shows the progress. */
export const run = ({ from, isRecord, json, to }: Arguments) =>
  Effect.gen(function* () {
    if (Option.isNone(from) && Option.isNone(to)) {
      return yield* new WrongStores({
        message: "migrate-store requires --from or --to, or both. The default of each is the store of STORE_URL."
      })
    }
    const locations = { from: yield* storeOf("--from", from), to: yield* storeOf("--to", to) }
    const form = json ? "json" : process.stderr.isTTY ? "bar" : "lines"
    const { done, report } = yield* CopyProgress.make(form, isRecord)
    yield* Effect.flatMap(StoreCopy.copy({ ...locations, report }), done)
  })
