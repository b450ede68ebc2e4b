/** Error messages for users. */
import { pictureOf, replaceHidden } from "../../base/HiddenCharacters.ts"
import { isClientError } from "../../Client/Errors.ts"

/** Whether a message has details. Those of browsers for failed requests have none. */
const isDetailed = (message: string): boolean => !/^(?:Failed to fetch|Load failed|NetworkError\b)/.test(message)

const textOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  if (!isClientError(error)) return error.message
  if (error._tag === "ConnectionFailed") {
    return isDetailed(error.message) ? `The service does not answer: ${error.message}` : "The service does not answer"
  }
  const request = "requestId" in error && error.status >= 500 ? error.requestId : undefined
  return request === undefined ? error.message : `${error.message} (request ${request})`
}

/** The message of an error. It may quote text of others, so its hidden characters are replaced. */
export const messageOf = (error: unknown): string => replaceHidden(textOf(error), "text", pictureOf)
export const isAbort = (error: unknown): boolean => error instanceof DOMException && error.name === "AbortError"
