/** `causeway kv delete`. */
import { Effect, Option } from "effect"
import type { Service } from "../../EffectClient/Client.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import * as Connection from "../Connection.ts"
import * as Failure from "../Failure.ts"
import { Args, Command, Options } from "../Library.ts"
import { confirm } from "../Terminal/Confirm.ts"
import { isJson, Output, record, write } from "../Terminal/Output.ts"
import { cleanName } from "../Terminal/Text.ts"
import { deleteCounted, type Outcome } from "./DeleteCounted.ts"
import { actor, checkVersion, given, ifVersion, namespace } from "./EntryArguments.ts"
import { countOf } from "./List.ts"
import * as Write from "./Write.ts"

const entries = (count: number): string => `${count.toLocaleString("en")} ${count === 1 ? "entry" : "entries"}`

/** Describes the entries with a prefix. */
const selected = (namespace: string, prefix: string): string =>
  prefix === ""
    ? `of ${cleanName(namespace)}, which is all of them`
    : `of ${cleanName(namespace)} with keys that start with ${cleanName(prefix)}`

/** Counts the entries and asks for confirmation. Returns `undefined` if there is nothing to delete. */
const confirmed = (client: Service, connection: Connection.Connection, namespace: string, prefix: string) =>
  Effect.gen(function* () {
    const { count, ...position } = yield* countOf(client, connection, namespace, { prefix })
    if (count === 0) return undefined
    const answer = yield* confirm(`Delete ${entries(count)} ${selected(namespace, prefix)}?`)
    if (Option.isNone(answer)) {
      return yield* wrong(
        "The deletion cannot be confirmed without a terminal. Nothing was deleted",
        `--yes deletes ${entries(count)} ${selected(namespace, prefix)}.`
      )
    }
    if (!answer.value) return yield* failed("Nothing was deleted")
    return { namespace, prefix, ...position }
  })

/** How to repeat the deletion of a prefix. */
const howToRepeat = "the same command deletes the remaining entries"

/** Deletes in batches until no entry is left. `onDeleted` receives the number of entries of each batch. */
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
        Failure.of(connection, howToRepeat)
      )
      onDeleted(count)
      total += count
      isMore = more && count > 0
    }
    return { count: total, kept: 0 }
  })

/** Deletes the entries with a prefix: if `isAsked`, those that the user has confirmed, otherwise all. */
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
    const counted = isAsked ? yield* confirmed(client, connection, namespace, prefix) : undefined
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

const outcomeText = ({ count, kept }: Outcome): string => {
  const stays = kept === 0 ? "" : `; ${entries(kept)} stay: they were written in the meantime`
  return count + kept === 0 ? "There were no such entries" : `Deleted: ${entries(count)}${stays}`
}

/** `causeway kv delete <namespace>` of a key or a prefix. */
export const remove = Command.make(
  "delete",
  {
    namespace,
    key: Args.text({ name: "key" }).pipe(Args.optional),
    prefix: Options.text("prefix").pipe(
      Options.withDescription("Delete all entries with keys that start with this, instead of one entry"),
      Options.optional
    ),
    yes: Options.boolean("yes").pipe(Options.withDescription("Delete entries with a prefix without confirmation")),
    ifVersion: ifVersion("Only if the entry is at this version"),
    actor,
    ...Write.options,
    ...Connection.options
  },
  ({ actor, idempotencyKey, ifVersion, json, key, namespace, prefix, retryFor, yes, ...options }) =>
    Effect.gen(function* () {
      yield* checkVersion(ifVersion, 1)
      if (Option.isSome(key) === Option.isSome(prefix)) return yield* wrong("Give a key, or --prefix and no key")
      if (Option.isSome(prefix) && Option.isSome(ifVersion)) return yield* wrong("--prefix excludes --if-version")
      if (Option.isSome(prefix) && (Option.isSome(idempotencyKey) || retryFor !== 0)) {
        return yield* wrong(
          "--prefix excludes --idempotency-key and --retry-for",
          "The command can be repeated as it is."
        )
      }
      const connection = yield* Connection.resolve(options)
      const author = given("actor", actor)
      if (Option.isSome(prefix)) {
        const outcome = yield* deletePrefix(connection, namespace, prefix.value, !yes, author)
        const { count, kept } = outcome
        return yield* (yield* isJson(json))
          ? record({ deleted: count > 0, count, ...(kept > 0 && { kept }) })
          : write(`${outcomeText(outcome)}\n`)
      }
      const client = yield* Connection.store(connection)
      const name = Option.getOrElse(key, () => "")
      const deleted = yield* Write.once(connection, { idempotencyKey, retryFor }, once =>
        client.delete(namespace, name, { ...once, ...given("ifVersion", ifVersion), ...author })
      )
      const address = `${cleanName(namespace)} ${cleanName(name)}`
      return yield* (yield* isJson(json))
        ? record({ deleted })
        : write(deleted ? `${address} is deleted\n` : `There was no ${address}\n`)
    })
).pipe(Command.withDescription("Delete an entry, or all with a prefix; succeeds if there is none"))
