/** Explains failures of requests to the user. */
import type { ClientError, SessionsError } from "../Client/Effect/Client.ts"
import { CommandFailed, exitCodes } from "./CommandFailed.ts"
import { type Connection, type Kind, variables } from "./Connection.ts"

const credentials: Readonly<Record<Kind, string>> = { store: "the key of the service", sessions: "the token of a user" }

const credentialHint = (kind: Kind, source: string, wanted = credentials[kind]): string =>
  `${source === "" ? "There is no credential." : `The credential is from ${source}.`} Give ${wanted} by --token-file, ${
    variables[kind].token
  } or a profile.`

const outcomeUnknown = "A write may or may not have been applied"

/** The service cannot be reached or is unavailable. */
const unavailable = (url: string, reason: string, hint: string): CommandFailed =>
  new CommandFailed({ message: `${url}: ${reason}`, hint, exitCode: exitCodes.unavailable })

/** Whether the answer comes from a proxy that got none from the service, or not in time. */
const isOfProxy = ({ status }: { readonly status: number }): boolean => [408, 429, 502, 504].includes(status)

/** A failed call as the failure of the command. `repeat` says how to repeat a write; it is absent for reads. */
export const of =
  ({ kind, source, url }: Pick<Connection, "url" | "kind" | "source">, repeat?: string) =>
  (error: ClientError | SessionsError): CommandFailed => {
    const { message } = error
    const unknown = repeat === undefined ? "" : ` ${outcomeUnknown}: ${repeat}.`
    const failed = (exitCode: number, hint?: string) =>
      new CommandFailed({ message, exitCode, ...(hint !== undefined && { hint }) })
    switch (error._tag) {
      case "Unauthorized":
        return new CommandFailed({
          message: `The service refuses the credential: ${message}`,
          hint: credentialHint(kind, source),
          exitCode: exitCodes.accessRefused
        })
      case "Forbidden":
        return failed(
          exitCodes.accessRefused,
          `The credential only reads, or belongs to another tenant. ${credentialHint(kind, source, "another one")}`
        )
      case "BadRequest":
        return failed(exitCodes.wrongArguments)
      case "PayloadTooLarge":
        return failed(exitCodes.wrongArguments, "The limits are settings of the service: LIMIT_VALUE_BYTES and others.")
      case "UnprocessableContent":
        return failed(exitCodes.wrongArguments, "Nothing was written. Give this write its own key.")
      case "PreconditionFailed":
        return failed(exitCodes.preconditionFailed, "Read the entry, and try again with its version as --if-version.")
      case "ConnectionFailed":
        return error.isTimeout
          ? unavailable(url, message, `--timeout allows more time.${unknown}`)
          : unavailable(
              url,
              `it cannot be reached: ${message}`,
              `Is the service running there? causeway dev starts one; --url gives another address.${unknown}`
            )
      case "ServiceUnavailable":
        return unavailable(url, message, `Try again later.${unknown}`)
      case "NotFound":
      case "MethodNotAllowed":
      case "InvalidResponse":
        // The service may have applied the write before the proxy answered.
        if (isOfProxy(error)) return unavailable(url, message, `Try again later.${unknown}`)
        return new CommandFailed({
          message: `${url}: ${message}`,
          hint: "Is this the address of a Causeway service, and a version that has this command?",
          exitCode: exitCodes.failed
        })
      case "ConnectionClosed":
      case "AnswerLost":
        return unavailable(url, message, "Try again later.")
      case "RequestRefused":
        if (error.code === "not_found") {
          return failed(exitCodes.notFound, "causeway sessions list lists the sessions.")
        }
        return failed(
          exitCodes.failed,
          error.retryable ? "Try again later." : `The log of the service has details under trace ${error.traceId}.`
        )
      case "InternalServerError":
        return failed(
          exitCodes.failed,
          error.requestId === undefined ? undefined : `The log of the service has details under ${error.requestId}.`
        )
      default:
        return failed(exitCodes.failed)
    }
  }
