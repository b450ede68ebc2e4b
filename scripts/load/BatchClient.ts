/** Sends batches with the client of the service, and retries while the service is unavailable. */
import { type Duration, Effect, Option, type Redacted, Schema } from "effect"
import * as Client from "../../src/Client/Effect/Client.ts"
import { retryWhileUnavailable } from "../../src/CommandLine/Service.ts"
import type { Operation } from "./Batches.ts"

/** The service refused a batch; a retry is useless. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", {
  /** The status of the answer, if there is a whole one. */
  status: Schema.OptionFromSelf(Schema.Int),
  reason: Schema.String
}) {
  override get message(): string {
    return Option.match(this.status, {
      onNone: () => this.reason,
      onSome: status => `The service answers ${status}: ${this.reason}`
    })
  }
}

/** The service is unreachable, overloaded or has no store. */
export class Away extends Schema.TaggedError<Away>()("Away", {
  reason: Schema.String
}) {
  override get message(): string {
    return `The service is unavailable: ${this.reason}`
  }
}

/** The address of the service, and timeouts. */
export interface Options {
  /** The base address, without a slash at the end. */
  readonly url: string
  readonly key: Redacted.Redacted
  readonly actor: string
  readonly fetch?: typeof globalThis.fetch
  /** How long a batch is retried while the service is unavailable; a minute by default. */
  readonly giveUpAfter?: Duration.DurationInput
  /** Called with a line for each batch that is retried. */
  readonly onAway?: (line: string) => Effect.Effect<void>
}

/** Statuses with which proxies report that the service is unavailable or overloaded. */
const passing = new Set([429, 502, 503, 504])

const problemOf = (error: Client.ClientError): Refused | Away => {
  const { message } = error
  if (error._tag === "ConnectionFailed") return new Away({ reason: message })
  if (!("status" in error)) return new Refused({ status: Option.none(), reason: message })
  const { status } = error
  return passing.has(status)
    ? new Away({ reason: `${status} ${message}` })
    : new Refused({ status: Option.some(status), reason: message })
}

/** Sends operations as one batch. Returns the number of applied operations. */
export type BatchClient = (operations: ReadonlyArray<Operation>) => Effect.Effect<number, Refused | Away>

/**
 * A client that retries batches while the service is unavailable. If the answer of a committed batch is lost, the retry
 * sets the same values again and increments their versions.
 */
export const make = (options: Options): Effect.Effect<BatchClient> => {
  const { actor, fetch, giveUpAfter = "1 minute", key, onAway = () => Effect.void, url } = options
  return Effect.map(
    Client.make({ baseUrl: url, token: key, ...(fetch !== undefined && { fetch }) }),
    client => operations =>
      client
        .batch(operations, { actor })
        .pipe(
          retryWhileUnavailable(giveUpAfter, onAway),
          Effect.mapBoth({ onFailure: problemOf, onSuccess: results => results.length })
        )
  )
}
