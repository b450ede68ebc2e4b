/** The commands of `causeway`. */
import { Effect, type Option } from "effect"
import { command as backup } from "./Store/Backup.ts"
import type { CommandFailed } from "./CommandFailed.ts"
import * as Connection from "./Connection.ts"
import { remove } from "./Entries/Delete.ts"
import { leaf, node } from "./Help.ts"
import * as Kv from "./Entries/Kv.ts"
import { Command, Options } from "./Library.ts"
import { list, namespaces } from "./Entries/List.ts"
import { isJson } from "./Terminal/Output.ts"
import { command as restore } from "./Store/Restore.ts"
import * as Sessions from "./Sessions.ts"
import * as Status from "./Status.ts"
import { command as batch } from "./Transfer/Batch.ts"
import { command as exporting } from "./Transfer/Export.ts"
import { command as importing } from "./Transfer/Import.ts"
import { watch } from "./Entries/Watch.ts"

/** What `causeway migrate-store` is given. */
export interface MigrateStore {
  readonly from: Option.Option<string>
  readonly to: Option.Option<string>
  /** Whether `--json` is given, so that progress is printed as JSON too. */
  readonly json: boolean
  /** Whether what is printed at the end is JSON. */
  readonly isRecord: boolean
}

const storeOption = (name: string, description: string) =>
  Options.text(name).pipe(
    Options.withPseudoName("store"),
    Options.withDescription(`${description}; that of STORE_URL without it`),
    Options.optional
  )

/** What the commands get from the composition of the service, each loaded when it is used. */
export interface Parts extends Status.Documents {
  readonly serve: Effect.Effect<void, CommandFailed>
  readonly develop: Effect.Effect<void, CommandFailed>
  readonly migrateStore: (given: MigrateStore) => Effect.Effect<void, CommandFailed>
}

/** All commands, and how they are listed. */
export const make = (parts: Parts) => {
  const serve = Command.make("serve", {}, () => parts.serve).pipe(
    Command.withDescription("Serve until SIGTERM or SIGINT, as causeway without a command does")
  )
  const dev = Command.make("dev", {}, () => parts.develop).pipe(
    Command.withDescription("Serve with development keys and simulated upstream services")
  )
  const kv = Command.make("kv").pipe(
    Command.withDescription("Entries of the store"),
    Command.withSubcommands([Kv.get, Kv.set, remove, list, namespaces, watch])
  )
  const sessions = Command.make("sessions").pipe(
    Command.withDescription("Sessions of agents"),
    Command.withSubcommands([Sessions.list, Sessions.show, Sessions.tail])
  )
  const migrateStore = Command.make(
    "migrate-store",
    {
      from: storeOption("from", "The store to copy: sqlite:<directory> or postgres://<user>@<host>/<database>"),
      to: storeOption("to", "Where to copy it"),
      json: Connection.options.json
    },
    given => Effect.flatMap(isJson(given.json), isRecord => parts.migrateStore({ ...given, isRecord }))
  ).pipe(Command.withDescription("Copy a store that nobody serves from SQLite into PostgreSQL, or back"))
  const openapi = Status.openapi(parts)
  const command = Command.make("causeway").pipe(
    Command.withDescription("A versioned key-value store over HTTP, and a gateway to an AI-agent platform."),
    Command.withSubcommands([
      ...([serve, dev, kv, batch, exporting, importing] as const),
      ...([backup, restore, migrateStore, Status.health, openapi, sessions, Sessions.chat] as const)
    ])
  )
  const tree = node(command, [
    leaf(serve),
    leaf(dev),
    node(kv, [leaf(Kv.get), leaf(Kv.set), leaf(remove), leaf(list), leaf(namespaces), leaf(watch)]),
    leaf(batch),
    leaf(exporting),
    leaf(importing),
    leaf(backup),
    leaf(restore),
    leaf(migrateStore),
    leaf(Status.health),
    leaf(openapi),
    node(sessions, [leaf(Sessions.list), leaf(Sessions.show), leaf(Sessions.tail)]),
    leaf(Sessions.chat)
  ])
  return { command, tree }
}
