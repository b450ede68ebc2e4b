/** `causeway kv delete`. */
import { Effect, Option, Stream } from "effect"
import type { ClientError } from "../../Client/Effect/Client.ts"
import type { ChangePage, EntryKey } from "../../Client/Model.ts"
import { json } from "../../Client/Requests.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import { actor, checkVersion, flag, given, ifVersion, namespace, text } from "../CommandOptions.ts"
import * as Connection from "../Connection.ts"
import { Args, Command } from "../Library.ts"
import { ask, failureOf, writeOnce, writeOptions } from "../Service.ts"
import { confirm } from "../Terminal/Input.ts"
import { answer, Output } from "../Terminal/Output.ts"
import { cleanName } from "../Terminal/Text.ts"
import { countOf } from "./List.ts"

/** What to delete: the entries that existed at a position of the change log. */
export interface Counted {
  readonly namespace: string
  readonly prefix: string
  readonly lastSeq: number
  readonly epoch: string
}

const readChanges = json<ChangePage>(({ changes, lastSeq }) => Array.isArray(changes) && Number.isSafeInteger(lastSeq))

const again = "Run the command again: it counts the entries again, and asks."

/**
 * The keys that are set after a position of the log, as far as it is read, and the function that reads it up to a later
 * one. Deletes are ignored, including those of this command: a deleted key is not listed, and one that was set again has
 * a later set.
 */
const writtenKeys = (connection: Connection.Connection, { epoch, lastSeq: start, namespace, prefix }: Counted) => {
  const keys = new Set<string>()
  let after = start
  const readTo = (end: number): Effect.Effect<void, CommandFailed> =>
    Effect.gen(function* () {
      while (after < end) {
        const query = { after, limit: 1000, namespace, prefix, epoch }
        const { changes, lastSeq } = yield* ask(connection, { path: "/changes", query }, readChanges)
        for (const { key, op } of changes) if (op === "set") keys.add(key)
        if (lastSeq <= after) return yield* failed("The log ends before the position of the list", again)
        after = lastSeq
      }
    })
  return { keys, readTo }
}

/**
 * Deletes the counted entries that were not written since then. Each batch is atomic and requires the version of each
 * entry. `onDeleted` receives the number of entries of each batch. Returns the number of entries that stay.
 */
export const deleteCounted = (
  { client, connection }: Connection.Opened,
  counted: Counted,
  options: { readonly actor?: string },
  onDeleted: (count: number) => void
): Effect.Effect<number, CommandFailed> => {
  const { epoch, namespace, prefix } = counted
  const written = writtenKeys(connection, counted)
  const explain = failureOf(connection)

  const remove = (items: ReadonlyArray<EntryKey>): Effect.Effect<number, ClientError> => {
    if (items.length === 0) return Effect.succeed(0)
    const operations = items.map(({ key, version }) => ({ op: "delete", namespace, key, ifVersion: version }) as const)
    return client.batch(operations, options).pipe(
      Effect.as(items.length),
      Effect.tap(count => Effect.sync(() => onDeleted(count))),
      Effect.catchTags({
        // The entry was written after the list was read.
        PreconditionFailed: error => {
          const late = error.operation === undefined ? undefined : items[error.operation]
          if (late === undefined) return error
          written.keys.add(late.key)
          return remove(items.filter(item => item !== late))
        },
        PayloadTooLarge: error => {
          if (items.length === 1) return error
          const half = Math.ceil(items.length / 2)
          return Effect.zipWith(remove(items.slice(0, half)), remove(items.slice(half)), (a, b) => a + b)
        }
      })
    )
  }

  return client.listKeys(namespace, { prefix }).pipe(
    Stream.mapError(explain),
    Stream.runFoldEffect(0, (kept, page) =>
      Effect.gen(function* () {
        if (page.epoch !== epoch)
          return yield* failed("The store was restored or replaced after the entries were counted", again)
        yield* written.readTo(page.lastSeq)
        const unchanged = page.items.filter(({ key }) => !written.keys.has(key))
        const count = yield* Effect.mapError(remove(unchanged), explain)
        return kept + page.items.length - count
      })
    )
  )
}

const entries = (count: number): string => `${count.toLocaleString("en")} ${count === 1 ? "entry" : "entries"}`

/** Describes the entries with a prefix. */
const selected = (namespace: string, prefix: string): string =>
  prefix === ""
    ? `of ${cleanName(namespace)}, which is all of them`
    : `of ${cleanName(namespace)} with keys that start with ${cleanName(prefix)}`

/** Counts the entries and asks for confirmation. Returns `undefined` if there is nothing to delete. */
const confirmed = (service: Connection.Opened, namespace: string, prefix: string) =>
  Effect.gen(function* () {
    const { count, ...position } = yield* countOf(service, namespace, { prefix })
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

/** Deletes in batches until no entry is left. `onDeleted` receives the number of entries of each batch. */
const deleteAll = (
  { client, connection }: Connection.Opened,
  namespace: string,
  prefix: string,
  options: { readonly actor?: string },
  onDeleted: (count: number) => void
): Effect.Effect<number, CommandFailed> =>
  client.deletePrefix(namespace, prefix, options).pipe(
    Effect.tap(({ count }) => Effect.sync(() => onDeleted(count))),
    Effect.repeat({ while: ({ count, more }) => more && count > 0 }),
    Effect.mapError(failureOf(connection, "the same command deletes the remaining entries")),
    Effect.as(0)
  )

/** The number of deleted entries, and of those that stay because they were written after the count. */
interface Outcome {
  readonly count: number
  readonly kept: number
}

/** Deletes the entries with a prefix: if `isAsked`, those that the user has confirmed, otherwise all. */
const deletePrefix = (
  service: Connection.Opened,
  namespace: string,
  prefix: string,
  isAsked: boolean,
  options: { readonly actor?: string }
): Effect.Effect<Outcome, CommandFailed, Output> =>
  Effect.gen(function* () {
    const { note } = yield* Output
    let count = 0
    const onDeleted = (more: number) => {
      count += more
    }
    const counted = isAsked ? yield* confirmed(service, namespace, prefix) : undefined
    if (isAsked && counted === undefined) return { count, kept: 0 }
    const kept = yield* (
      counted === undefined
        ? deleteAll(service, namespace, prefix, options, onDeleted)
        : deleteCounted(service, counted, options, onDeleted)
    ).pipe(
      Effect.tapError(() => (count === 0 ? Effect.void : note(`${entries(count)} were deleted before this:`))),
      Effect.onInterrupt(() => (count === 0 ? Effect.void : note(`${entries(count)} were deleted.`)))
    )
    return { count, kept }
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
    prefix: text("prefix", "Delete all entries with keys that start with this, instead of one entry"),
    yes: flag("yes", "Delete entries with a prefix without confirmation"),
    ifVersion: ifVersion("Only if the entry is at this version"),
    actor,
    ...writeOptions,
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
      const service = yield* Connection.openStore(options)
      const author = given("actor", actor)
      if (Option.isSome(prefix)) {
        const outcome = yield* deletePrefix(service, namespace, prefix.value, !yes, author)
        const { count, kept } = outcome
        return yield* answer(
          json,
          { deleted: count > 0, count, ...(kept > 0 && { kept }) },
          () => `${outcomeText(outcome)}\n`
        )
      }
      const name = Option.getOrElse(key, () => "")
      const deleted = yield* writeOnce(service.connection, { idempotencyKey, retryFor }, once =>
        service.client.delete(namespace, name, { ...once, ...given("ifVersion", ifVersion), ...author })
      )
      const address = `${cleanName(namespace)} ${cleanName(name)}`
      yield* answer(json, { deleted }, () => (deleted ? `${address} is deleted\n` : `There was no ${address}\n`))
    })
).pipe(Command.withDescription("Delete an entry, or all with a prefix; succeeds if there is none"))
