import { createHash } from "node:crypto"
import { Deferred, Effect, Option } from "effect"
import type { StoreUnavailable } from "../../Kv/Store.ts"
import { type Caller, SessionConflict } from "../Sessions.ts"
import { type Command, CommandQueue } from "./CommandQueue.ts"
import type { SessionCore } from "./SessionCore.ts"

/** The id of a command that is carried out once, with a digest of its content. Absent: carried out each time. */
export type OnceId = { readonly id: string; readonly digest: string } | undefined

/** The client's own id of a command, or else the id of a call that may be repeated. */
export const onceIdOf = (
  clientMessageId: string | undefined,
  { commandId }: Pick<Caller, "commandId">,
  ...content: ReadonlyArray<unknown>
): OnceId => {
  const id = clientMessageId ?? commandId
  return id === undefined
    ? undefined
    : { id, digest: createHash("sha256").update(JSON.stringify(content)).digest("base64url") }
}

/** The commands of one session, one at a time. A command with an id is carried out once, and its receipt is stored. */
export class IdempotentCommands {
  private readonly queue: CommandQueue

  constructor(private readonly session: SessionCore) {
    this.queue = new CommandQueue(session.shared.scope)
  }

  /** Queues a command. If its id has a receipt, the command is not run, and the result is made from the receipt. */
  run<Prepared, Result, E>(
    onceId: OnceId,
    resultOf: (turnId: string | null) => Result,
    { prepare, run, wait }: Command<Prepared, Result, E | SessionConflict | StoreUnavailable>
  ): Effect.Effect<Result, E | SessionConflict | StoreUnavailable> {
    const queued = this.queue.run<Prepared, Result, E | SessionConflict | StoreUnavailable>({
      prepare,
      wait,
      run: (prepared, done, block) =>
        // The same command may have been carried out while this one waited.
        Effect.flatMap(this.findReceipt(onceId), before =>
          Option.isSome(before)
            ? Effect.asVoid(Deferred.succeed(done, resultOf(before.value)))
            : run(prepared, done, block)
        )
    })
    return Effect.flatMap(
      this.findReceipt(onceId),
      Option.match({ onNone: () => queued, onSome: turnId => Effect.succeed(resultOf(turnId)) })
    )
  }

  /** The turn of an earlier command with the same id, if there was one. Fails if its content differs. */
  private findReceipt(onceId: OnceId): Effect.Effect<Option.Option<string | null>, SessionConflict | StoreUnavailable> {
    if (onceId === undefined) return Effect.succeedNone
    const { id, digest } = onceId
    const message = `The clientMessageId ${JSON.stringify(id)} was used with other content`
    return Effect.flatMap(
      this.session.shared.events.receipt(this.session.key, id),
      Option.match({
        onNone: () => Effect.succeedNone,
        onSome: found => (found.digest === digest ? Effect.succeedSome(found.turnId) : new SessionConflict({ message }))
      })
    )
  }
}
