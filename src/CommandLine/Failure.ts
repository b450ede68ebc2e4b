/** What a failure of a request means to the one who has run the command. */
import type { ClientError, SessionsError } from "../EffectClient/Client.ts"
import { CommandFailed, exitCodes } from "./CommandFailed.ts"
import type { Connection } from "./Connection.ts"

const credentialHint = (source: string, kind: string): string =>
  source === ""
    ? `There is no credential. Give ${kind} by --token-file, by the environment or by a profile.`
    : `The credential is from ${source}. Give another one by --token-file, by the environment or by a profile.`

const outcomeUnknown = "A write may or may not have been applied"

/** The service cannot be reached, or not at present. */
const away = (url: string, reason: string, hint: string): CommandFailed =>
  new CommandFailed({ message: `${url}: ${reason}`, hint, exitCode: exitCodes.unavailable })

/** Whether the answer is that of a proxy which has none of the service, or has waited for too long. */
const isOfProxy = ({ status }: { readonly status: number }): boolean => [408, 429, 502, 504].includes(status)

/** A failed call as the failure of the command. `repeat` tells how a write is repeated; a command that reads has none. */
export const of =
  ({ source, url }: Pick<Connection, "url" | "source">, repeat?: string) =>
  (error: ClientError | SessionsError): CommandFailed => {
    const { message } = error
    const unknown = repeat === undefined ? "" : ` ${outcomeUnknown}: ${repeat}.`
    const failed = (exitCode: number, hint?: string) =>
      new CommandFailed({ message, exitCode, ...(hint !== undefined && { hint }) })
    switch (error._tag) {
      case "Unauthorized":
        return new CommandFailed({
          message: `The service refuses the credential: ${message}`,
          hint: credentialHint(source, "the key of the service"),
          exitCode: exitCodes.accessRefused
        })
      case "Forbidden":
        return failed(exitCodes.accessRefused, credentialHint(source, "a key that writes"))
      case "BadRequest":
        return failed(exitCodes.wrongArguments)
      case "PayloadTooLarge":
        return failed(exitCodes.wrongArguments, "The limits are settings of the service: LIMIT_VALUE_BYTES and others.")
      case "UnprocessableContent":
        return failed(exitCodes.wrongArguments, "Nothing was written. Give this write a key of its own.")
      case "PreconditionFailed":
        return failed(exitCodes.preconditionFailed, "Read the entry, and try again with its version as --if-version.")
      case "ConnectionFailed":
        return error.isTimeout
          ? away(url, message, `--timeout gives more time.${unknown}`)
          : away(
              url,
              `it cannot be reached: ${message}`,
              `Is the service running there? causeway dev starts one; --url names another one.${unknown}`
            )
      case "ServiceUnavailable":
        return away(url, message, `Try again later.${unknown}`)
      case "NotFound":
      case "MethodNotAllowed":
      case "InvalidResponse":
        // A proxy answers so for a service that it has asked, which may have applied the write.
        if (isOfProxy(error)) return away(url, message, `Try again later.${unknown}`)
        return new CommandFailed({
          message: `${url}: ${message}`,
          hint: "Is this the address of a Causeway service, and a version that has this command?",
          exitCode: exitCodes.failed
        })
      case "ConnectionClosed":
      case "AnswerLost":
        return away(url, message, "Try again later.")
      case "RequestRefused":
        return failed(
          error.code === "not_found" ? exitCodes.notFound : exitCodes.failed,
          error.retryable ? "Try again later." : `The log of the service tells more of trace ${error.traceId}.`
        )
      case "InternalServerError":
        return failed(
          exitCodes.failed,
          error.requestId === undefined ? undefined : `The log of the service tells more of ${error.requestId}.`
        )
      default:
        return failed(exitCodes.failed)
    }
  }
