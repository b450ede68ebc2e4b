/** The meaning of errors of the database and of its client. Messages are for the log and contain no parameters. */
import { Data, Effect, Schema } from "effect"
import pg from "pg"
import { messageOf } from "../../../base/ErrorMessage.ts"
import { StoreUnavailable } from "../../../Kv/Store.ts"

/** The store cannot be used in its present state. The message gives the operator the reason. */
export class StoreRefused extends Schema.TaggedError<StoreRefused>()("StoreRefused", { message: Schema.String }) {
  /** The message is for users of the program that it ends. Positions in this code would not help them. */
  override readonly stack = `${this.name}: ${this.message}`
}

/** A statement that never reached the database. */
export class NotSent extends Data.TaggedError("NotSent")<{ readonly reason: string }> {}

/** A statement for which the database reported an error, with its SQLSTATE. */
export class Rejected extends Data.TaggedError("Rejected")<{ readonly reason: string; readonly sqlState: string }> {}

/** A statement that was sent, or may have been, and has no answer. */
export class Unanswered extends Data.TaggedError("Unanswered")<{ readonly reason: string }> {}

/** Why a statement failed. */
export type QueryError = NotSent | Rejected | Unanswered

/** The SQLSTATE of an error that the database reported, or the code of a system error. */
const codeOf = (error: unknown): string | undefined =>
  typeof error === "object" && error !== null && "code" in error && typeof error.code === "string"
    ? error.code
    : undefined

/** For a host with several addresses, the error has one error for each, and no message. */
const messagesOf = (error: unknown): string =>
  error instanceof AggregateError && error.message === "" ? error.errors.map(messagesOf).join("; ") : messageOf(error)

export const describe = (error: unknown): string => {
  if (error instanceof NotSent || error instanceof Rejected || error instanceof Unanswered) return error.reason
  const code = codeOf(error)
  const message = messagesOf(error).replace(/\s+/g, " ")
  return code === undefined || message.includes(code) ? message : `${message} (${code})`
}

/** Any failure as `StoreUnavailable`, with the message of the driver and its code as the reason. */
export const unavailable = (error: unknown): StoreUnavailable =>
  error instanceof StoreUnavailable ? error : new StoreUnavailable({ reason: describe(error) })

/** Fails with `StoreUnavailable` if there is no answer within some milliseconds. */
export const answeredWithin = (
  millis: number
): (<A, E, R>(answer: Effect.Effect<A, E, R>) => Effect.Effect<A, E | StoreUnavailable, R>) =>
  Effect.timeoutFail({
    duration: millis,
    onTimeout: () => new StoreUnavailable({ reason: `no answer within ${millis} ms` })
  })

/** The failure of a statement that was not sent, for this reason. */
export const notSent = (error: unknown): NotSent => new NotSent({ reason: describe(error) })

/** The failure of a statement that was sent, from the error of the client. */
export const ofAnswer = (error: unknown): Rejected | Unanswered => {
  const reason = describe(error)
  return error instanceof pg.DatabaseError && error.code !== undefined
    ? new Rejected({ reason, sqlState: error.code })
    : new Unanswered({ reason })
}

const sqlStateOf = (error: QueryError | StoreUnavailable): string => (error._tag === "Rejected" ? error.sqlState : "")

/** Whether the transaction has lost a race and can be repeated: a serialization failure or a deadlock. */
export const isConflict = (error: QueryError): boolean => ["40001", "40P01"].includes(sqlStateOf(error))

/**
 * Whether the statement may have been committed despite the error: the connection was lost, or the server ended the
 * session (classes 08, 57 and 58, and 40003). Any other error of the database means that it was rolled back.
 */
export const isOutcomeUnknown = (error: QueryError): boolean =>
  error._tag === "Unanswered" || /^(?:40003|08|57P|58)/.test(sqlStateOf(error))

/** Whether the content of a write caused the error, such as a row that is too large. Other writes may succeed. */
export const isOfContent = (error: QueryError | StoreUnavailable): boolean => /^(?:22|23|54)/.test(sqlStateOf(error))

/**
 * Whether a connection was refused because the server, the database or the role has its maximum number of connections.
 * PgBouncer reports this only in the message, with the SQLSTATE of a violation of the protocol.
 */
export const isOverLimit = (error: unknown): boolean =>
  codeOf(error) === "53300" ||
  (codeOf(error) === "08P01" && /no more connections allowed|client connections exceeded/.test(messagesOf(error)))

/** Whether the server has canceled a statement, as at its time limit. */
export const isCanceled = (error: unknown): boolean => codeOf(error) === "57014"

/** Whether a named statement is unknown to the server, or already known: a pooler shares its connections. */
export const isStatementLost = (error: QueryError): boolean => ["26000", "42P05"].includes(sqlStateOf(error))
