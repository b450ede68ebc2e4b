/** `causeway kv watch`: follows changes. */
import { Effect, Option, Runtime, Stream } from "effect"
import * as ExactJson from "../../base/Json/ExactJson.ts"
import type { ClientError, FollowOptions, Service } from "../../Client/Effect/Client.ts"
import type { FollowEvent, FollowStatus } from "../../Client/Model.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import { flag, given, prefix, text, wholeNumber } from "../CommandOptions.ts"
import * as Connection from "../Connection.ts"
import { Args, Command } from "../Library.ts"
import { endOfLog, failureOf } from "../Service.ts"
import { isJson, Output, record, truncate, write } from "../Terminal/Output.ts"
import { cleanJson, cleanName, type Paint } from "../Terminal/Text.ts"
import * as Entry from "./Entry.ts"

/** The arguments of the command. */
export interface Wanted {
  readonly namespace: Option.Option<string>
  readonly prefix: Option.Option<string>
  readonly from: Option.Option<number>
  readonly epoch: Option.Option<string>
  readonly tenant: Option.Option<string>
  readonly updatesOnly: boolean
}

/** The start of the follower. `end` is the end of the change log. */
export const start = (
  { epoch, from, namespace, prefix, tenant, updatesOnly }: Wanted,
  end: { readonly lastSeq: number; readonly epoch: string }
): FollowOptions => {
  const part = { ...given("prefix", prefix), ...given("tenant", tenant) }
  if (Option.isSome(from)) {
    return { after: from.value, ...part, ...given("namespace", namespace), ...given("epoch", epoch) }
  }
  if (Option.isSome(namespace)) return { namespace: namespace.value, ...part, initial: !updatesOnly }
  return { after: end.lastSeq, epoch: end.epoch, ...part }
}

const lineOf = (event: FollowEvent, cells: number, paint: Paint): string => {
  switch (event.type) {
    case "entry": {
      const { key, value, version } = event.entry
      return truncate(
        `${cleanName(key)}  v${version}  ${cleanName(cleanJson(ExactJson.textOf(value).slice(0, cells)))}`,
        cells
      )
    }
    case "change":
      return Entry.change(event.change, cells, paint)
    case "synced":
      return paint.dim(`· changes after ${event.lastSeq} follow`)
    case "reset":
      return paint.yellow("· the store was restored or replaced; what was shown is no longer valid")
    case "trimmed":
      return paint.yellow(`· changes after ${event.after} are no longer kept`)
  }
}

const problemOf = ({ epoch, from, namespace, prefix, tenant, updatesOnly }: Wanted): CommandFailed | undefined => {
  if (Option.isSome(prefix) && Option.isNone(namespace)) return wrong("--prefix requires a namespace")
  if (Option.isSome(from) && updatesOnly) return wrong("--from and --updates-only exclude each other")
  if (Option.isSome(from) && !(from.value >= 0)) return wrong("--from must be a position of the log, 0 or more")
  if (Option.isSome(epoch) && Option.isNone(from)) return wrong("--epoch requires --from")
  return Option.isSome(tenant) && Option.isSome(namespace) ? wrong("Give a namespace or --tenant") : undefined
}

/** Follows changes. From position 0 it starts at the first record that is kept. */
const follow = (client: Service, options: FollowOptions): Stream.Stream<FollowEvent, ClientError> =>
  Stream.flatMap(client.follow(options), event =>
    event.type === "trimmed" && event.after === 0 && event.trimmedSeq !== undefined && "after" in options
      ? follow(client, { ...options, after: event.trimmedSeq })
      : Stream.make(event)
  )

/** The events that end a follower from a position. A follower of a namespace starts again by itself. */
const endOf = (event: FollowEvent): CommandFailed | undefined => {
  switch (event.type) {
    case "reset":
      return failed(
        "The store was restored or replaced: the position is no longer valid",
        `List the entries again, then continue with --from ${event.lastSeq} --epoch ${event.epoch}.`
      )
    case "trimmed":
      return failed(
        `Changes after ${event.after} are no longer kept`,
        "List the entries again, then continue from the position of the list."
      )
    default:
      return undefined
  }
}

/** `causeway kv watch [namespace]`. It runs until it is interrupted, or until the position is no longer valid. */
export const watch = Command.make(
  "watch",
  {
    namespace: Args.text({ name: "namespace" }).pipe(
      Args.withDescription("Default: the whole change log"),
      Args.optional
    ),
    prefix,
    from: wholeNumber("from", "position", "Only changes after this position of the change log; 0: all that are kept"),
    epoch: text("epoch", "The epoch of the change log to which the position belongs"),
    tenant: text("tenant", "Only changes of this tenant"),
    updatesOnly: flag("updates-only", "Only changes from now on, without the existing entries"),
    ...Connection.options
  },
  ({ epoch, from, json, namespace, prefix, tenant, updatesOnly, ...options }) =>
    Effect.gen(function* () {
      const wanted = { namespace, prefix, from, epoch, tenant, updatesOnly }
      const problem = problemOf(wanted)
      if (problem !== undefined) return yield* problem
      const { client, connection } = yield* Connection.openStore(options)
      const isRecord = yield* isJson(json)
      const { cells, note, paint } = yield* Output
      // A failure at the start ends the command. Later the follower reconnects by itself.
      const end = yield* endOfLog(connection)
      const run = Runtime.runFork(yield* Effect.runtime<never>())
      const onStatus = (status: FollowStatus) => {
        if (status.type === "connected") return
        run(note(`${status.error.message}. Trying again in ${(status.retryInMs / 1000).toFixed(1)} s.`))
      }
      const follower = start(wanted, end)
      yield* Stream.runForEach(
        follow(client, { ...follower, onStatus }).pipe(Stream.mapError(failureOf(connection))),
        event =>
          Effect.gen(function* () {
            yield* isRecord ? record(event) : write(`${lineOf(event, cells(), paint)}\n`)
            const ended = "after" in follower ? endOf(event) : undefined
            if (ended !== undefined) yield* ended
          })
      )
    })
).pipe(Command.withDescription("Follow changes until interrupted"))
