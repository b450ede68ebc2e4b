/** `causeway kv delete`. */
import { Effect, Option } from "effect"
import type { Service } from "../../EffectClient/Client.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import { confirm } from "../Terminal/Confirm.ts"
import * as Connection from "../Connection.ts"
import { deleteCounted, type Outcome } from "./DeleteCounted.ts"
import { actor, given, ifVersion, namespace } from "./EntryArguments.ts"
import * as Failure from "../Failure.ts"
import { Args, Command, Options } from "../Library.ts"
import { countOf } from "./List.ts"
import { isJson, Output, record, write } from "../Terminal/Output.ts"
import { clean } from "../Terminal/Text.ts"
import * as Write from "./Write.ts"

const entries = (count: number): string => `${count.toLocaleString("en")} ${count === 1 ? "entry" : "entries"}`

/** The entries that a prefix selects, for the user. */
const selected = (namespace: string, prefix: string): string =>
  prefix === ""
    ? `of ${clean(namespace)}, which is all of them`
    : `of ${clean(namespace)} with keys that start with ${clean(prefix)}`

/** Asks the user, where there is one. Returns what was counted, unless there is nothing to delete. */
const agreed = (client: Service, connection: Connection.Connection, namespace: string, prefix: string) =>
  Effect.gen(function* () {
    const { count, ...position } = yield* countOf(client, connection, namespace, { prefix })
    if (count === 0) return undefined
    const answer = yield* confirm(`Delete ${entries(count)} ${selected(namespace, prefix)}?`)
    if (Option.isNone(answer)) {
      return yield* wrong(
        "Nobody can be asked here, and nothing was deleted",
        `--yes deletes ${entries(count)} ${selected(namespace, prefix)}.`
      )
    }
    if (!answer.value) return yield* failed("Nothing was deleted")
    return { namespace, prefix, ...position }
  })

/** How the deletion of a prefix is repeated. */
const deletedAgain = "the same command deletes what is left"

/** Deletes in batches until nothing is left, and returns how many entries that were. */
const deleteAll = (
  client: Service,
  connection: Connection.Connection,
  namespace: string,
  prefix: string,
  options: { readonly actor?: string },
  onDeleted: (count: number) => void
): Effect.Effect<Outcome, CommandFailed> =>
  Effect.gen(function* () {
    let total = 0
    for (let isMore = true; isMore; ) {
      const { count, more } = yield* Effect.mapError(
        client.deletePrefix(namespace, prefix, options),
        Failure.of(connection, deletedAgain)
      )
      onDeleted(count)
      total += count
      isMore = more && count > 0
    }
    return { count: total, kept: 0 }
  })

/** Deletes what a prefix selects: what the user has agreed to, or all. */
const deletePrefix = (
  connection: Connection.Connection,
  namespace: string,
  prefix: string,
  isAsked: boolean,
  options: { readonly actor?: string }
): Effect.Effect<Outcome, CommandFailed, Output> =>
  Effect.gen(function* () {
    const client = yield* Connection.store(connection)
    const { note } = yield* Output
    let total = 0
    const onDeleted = (count: number) => {
      total += count
    }
    const counted = isAsked ? yield* agreed(client, connection, namespace, prefix) : undefined
    if (isAsked && counted === undefined) return { count: 0, kept: 0 }
    return yield* (
      counted === undefined
        ? deleteAll(client, connection, namespace, prefix, options, onDeleted)
        : deleteCounted(client, connection, counted, options, onDeleted)
    ).pipe(
      Effect.tapError(() => (total === 0 ? Effect.void : note(`${entries(total)} were deleted before this:`))),
      Effect.onInterrupt(() => (total === 0 ? Effect.void : note(`${entries(total)} were deleted.`)))
    )
  })

const told = ({ count, kept }: Outcome): string => {
  const stays = kept === 0 ? "" : `; ${entries(kept)} stay, as they were written meanwhile`
  return count + kept === 0 ? "There were no such entries" : `Deleted: ${entries(count)}${stays}`
}

export const remove = Command.make(
  "delete",
  {
    namespace,
    key: Args.text({ name: "key" }).pipe(Args.optional),
    prefix: Options.text("prefix").pipe(
      Options.withDescription("Delete all entries with keys that start with this, in place of one entry"),
      Options.optional
    ),
    yes: Options.boolean("yes").pipe(Options.withDescription("Delete those of a prefix without a question")),
    ifVersion,
    actor,
    ...Write.options,
    ...Connection.options
  },
  ({ actor, idempotencyKey, ifVersion, json, key, namespace, patience, prefix, yes, ...options }) =>
    Effect.gen(function* () {
      if (Option.isSome(key) === Option.isSome(prefix)) return yield* wrong("Give a key, or --prefix and no key")
      if (Option.isSome(prefix) && Option.isSome(ifVersion)) return yield* wrong("--prefix takes no --if-version")
      if (Option.isSome(prefix) && (Option.isSome(idempotencyKey) || patience !== 0)) {
        return yield* wrong("--prefix takes no --idempotency-key and no --patience", "It can be repeated as it is.")
      }
      const connection = yield* Connection.resolve(options)
      const author = given("actor", actor)
      if (Option.isSome(prefix)) {
        const outcome = yield* deletePrefix(connection, namespace, prefix.value, !yes, author)
        const { count, kept } = outcome
        return yield* (yield* isJson(json))
          ? record({ deleted: count > 0, count, ...(kept > 0 && { kept }) })
          : write(`${told(outcome)}\n`)
      }
      const client = yield* Connection.store(connection)
      const name = Option.getOrElse(key, () => "")
      const deleted = yield* Write.once(connection, { idempotencyKey, patience }, once =>
        client.delete(namespace, name, { ...once, ...given("ifVersion", ifVersion), ...author })
      )
      const address = `${clean(namespace)} ${clean(name)}`
      return yield* (yield* isJson(json))
        ? record({ deleted })
        : write(deleted ? `${address} is deleted\n` : `There was no ${address}\n`)
    })
).pipe(Command.withDescription("Delete an entry, or all with a prefix; one that is not there is no failure"))
