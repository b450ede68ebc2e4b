/** Why connections to the gateway end, and whether to reconnect. */
import { ConnectionFailed, Unauthorized } from "./Errors.ts"
import type { Requests } from "./Requests.ts"
import { ConnectionClosed, isSessionsError, type SessionsError } from "./SessionErrors.ts"

/** The gateway closed the connection because it is overloaded. */
export class ShedLoad extends ConnectionFailed {}

/** The error of a close code (docs/protocol.md). It decides whether to reconnect, with a new token, or later. */
export const closeError = (code: number, reason: string): SessionsError => {
  const message = `The gateway closed the connection: ${code} ${reason}`.trimEnd()
  if (code === 4501) {
    return new Unauthorized({ message, status: 401, requestId: undefined, retryAfterMs: undefined })
  }
  const isFinal = code === 1002 || code === 1007 || code === 1009 || (code >= 4500 && code <= 4999)
  if (isFinal) return new ConnectionClosed(message, code)
  return code === 4001 ? new ShedLoad(message, false) : new ConnectionFailed(message, false)
}

/** Browsers and Node hide why a handshake was refused. An ordinary request to the same address finds the reason. */
export const whyRefused = async (requests: Requests, path: string, signal: AbortSignal): Promise<unknown> => {
  const error = new ConnectionFailed("The WebSocket handshake has failed", false)
  try {
    const response = await requests.open({ path }, signal)
    await response.body?.cancel()
  } catch (reason) {
    signal.throwIfAborted()
    if (!isSessionsError(reason)) throw reason
    switch (reason._tag) {
      case "Unauthorized":
      case "Forbidden":
      case "NotFound":
      case "ServiceUnavailable":
      case "ConnectionFailed":
      case "TokenUnavailable":
        return reason
      case "InvalidResponse":
        // Other statuses concern requests that are not handshakes.
        return [401, 403, 404, 429, 502, 503, 504].includes(reason.status) ? reason : error
    }
  }
  return error
}
