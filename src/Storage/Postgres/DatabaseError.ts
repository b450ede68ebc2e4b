/**
 * What an error of the database or of its client means. Messages are for the log and hold no parameters of statements.
 */
import { StoreUnavailable } from "../../Kv/Store.ts"

/** The SQLSTATE of an error that the database reported, or the code of a system error. */
export const codeOf = (error: unknown): string | undefined =>
  typeof error === "object" && error !== null && "code" in error && typeof error.code === "string"
    ? error.code
    : undefined

/** A statement that never reached the database. */
export class NotSent {
  constructor(readonly cause: unknown) {}
}

const messageOf = (error: unknown): string => {
  if (error instanceof NotSent) return messageOf(error.cause)
  // A host with several addresses gives one error for each, and a message for none.
  if (error instanceof AggregateError && error.message === "") return error.errors.map(messageOf).join("; ")
  return error instanceof Error ? error.message : String(error)
}

/** What happened, in one line. */
export const describe = (error: unknown): string => {
  const code = codeOf(error instanceof NotSent ? error.cause : error)
  const message = messageOf(error).replace(/\s+/g, " ")
  return code === undefined || message.includes(code) ? message : `${message} (${code})`
}

export const unavailable = (error: unknown): StoreUnavailable =>
  error instanceof StoreUnavailable ? error : new StoreUnavailable({ reason: describe(error) })

/** Whether the database itself reported the error, with a SQLSTATE. */
const sqlState = (error: unknown): string | undefined => {
  const code = codeOf(error)
  return code !== undefined && /^[0-9A-Z]{5}$/.test(code) ? code : undefined
}

/** Whether the transaction lost a race and can be repeated: a serialization failure or a deadlock. */
export const isConflict = (error: unknown): boolean => ["40001", "40P01"].includes(codeOf(error) ?? "")

/**
 * Whether the statement may have been committed all the same: the connection was lost, or the server ended the session
 * (classes 08, 57 and 58, and 40003). Any other error of the database means that it was rolled back.
 */
export const isOutcomeUnknown = (error: unknown): boolean => {
  if (error instanceof NotSent) return false
  const state = sqlState(error)
  return state === undefined || state === "40003" || /^(?:08|57P|58)/.test(state)
}

/** Whether an error is due to what was written, such as a row that is too large, so that other writes may succeed. */
export const isOfContent = (error: unknown): boolean => /^(?:22|23|54)/.test(sqlState(error) ?? "")

/** Whether a named statement is unknown to the server, or known already: a pooler shares its connections out. */
export const isStatementLost = (error: unknown): boolean => ["26000", "42P05"].includes(codeOf(error) ?? "")
