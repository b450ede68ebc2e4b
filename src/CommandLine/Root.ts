/** The commands of `causeway`. */
import { Effect, type Option } from "effect"
import type { CommandFailed } from "./CommandFailed.ts"
import * as Connection from "./Connection.ts"
import { remove } from "./Entries/Delete.ts"
import * as Kv from "./Entries/Kv.ts"
import { list, namespaces } from "./Entries/List.ts"
import { watch } from "./Entries/Watch.ts"
import { Command, Options } from "./Library.ts"
import * as Sessions from "./Sessions.ts"
import * as Status from "./Status.ts"
import { command as backup } from "./Store/Backup.ts"
import { command as restore } from "./Store/Restore.ts"
import { isJson } from "./Terminal/Output.ts"
import { command as batch } from "./Transfer/Batch.ts"
import { command as exporting } from "./Transfer/Export.ts"
import { command as importing } from "./Transfer/Import.ts"
import { group, leaf } from "./Tree.ts"

/** The arguments of `causeway migrate-store`. */
export interface MigrateStore {
  readonly from: Option.Option<string>
  readonly to: Option.Option<string>
  /** Whether `--json` is given; progress is printed as JSON then. */
  readonly json: boolean
  /** Whether the result is printed as JSON. */
  readonly isRecord: boolean
}

/** What the composition of the service provides. Each part is loaded when it is used. */
export interface Parts extends Status.Documents {
  readonly serve: Effect.Effect<void, CommandFailed>
  readonly develop: Effect.Effect<void, CommandFailed>
  readonly migrateStore: (given: MigrateStore) => Effect.Effect<void, CommandFailed>
}

const storeOption = (name: string, description: string) =>
  Options.text(name).pipe(
    Options.withPseudoName("store"),
    Options.withDescription(`${description}; default the store of STORE_URL`),
    Options.optional
  )

const migrateStore = ({ migrateStore }: Parts) =>
  Command.make(
    "migrate-store",
    {
      from: storeOption("from", "The store to copy: sqlite:<directory> or postgres://<user>@<host>/<database>"),
      to: storeOption("to", "The store to copy to"),
      json: Connection.options.json
    },
    given => Effect.flatMap(isJson(given.json), isRecord => migrateStore({ ...given, isRecord }))
  ).pipe(Command.withDescription("Copy a store that no service uses from SQLite into PostgreSQL, or back"))

/** All commands, and their tree for help and completions. */
export const make = (parts: Parts) => {
  const serve = Command.make("serve", {}, () => parts.serve).pipe(
    Command.withDescription("Serve until SIGTERM or SIGINT, like causeway without a command")
  )
  const dev = Command.make("dev", {}, () => parts.develop).pipe(
    Command.withDescription("Serve with development keys and simulated upstream services")
  )
  return group("causeway", "A versioned key-value store over HTTP, and a gateway to an AI-agent platform.", [
    leaf(serve),
    leaf(dev),
    group("kv", "Entries of the store", [
      leaf(Kv.get),
      leaf(Kv.set),
      leaf(remove),
      leaf(list),
      leaf(namespaces),
      leaf(watch)
    ]),
    leaf(batch),
    leaf(exporting),
    leaf(importing),
    leaf(backup),
    leaf(restore),
    leaf(migrateStore(parts)),
    leaf(Status.health),
    leaf(Status.openapi(parts)),
    group("sessions", "Sessions of agents", [leaf(Sessions.list), leaf(Sessions.show), leaf(Sessions.tail)]),
    leaf(Sessions.chat)
  ])
}
