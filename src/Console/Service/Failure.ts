/** What went wrong, for people. */
import { isClientError } from "../../Client/Errors.ts"

/** Whether a message tells more than that there was no answer, as browsers put it. */
const says = (message: string): boolean => !/^(?:Failed to fetch|Load failed|NetworkError\b)/.test(message)

/** What an error tells, and the name of the request in the service's log. */
export const messageOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  if (!isClientError(error)) return error.message
  if (error._tag === "ConnectionFailed") {
    return says(error.message) ? `The service does not answer: ${error.message}` : "The service does not answer"
  }
  const { message } = error
  return "requestId" in error && error.requestId !== undefined && error.status >= 500
    ? `${message} (request ${error.requestId})`
    : message
}

/** Whether a call was ended by the page itself. */
export const isAbort = (error: unknown): boolean => error instanceof DOMException && error.name === "AbortError"
