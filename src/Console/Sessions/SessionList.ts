/** The sessions of the user's tenant. */
import { signal } from "@preact/signals"
import type { SessionState } from "../../Client/Client.ts"
import { type Session, type Sessions, Unauthorized } from "../../Client/Client.ts"
import { openSessions } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"

/** The sessions, newest first. */
export const listed = signal<ReadonlyArray<Session>>([])

/** Why the list cannot be read; `""` if it can. */
export const listProblem = signal("")

/** Whether the list has been read. */
export const isListRead = signal(false)

/** The maximum number of sessions in the list. */
const maxSessions = 2000

/** Reads the list again, newest sessions first. */
export const refreshSessions = async (sessions: Sessions, signal: AbortSignal): Promise<void> => {
  try {
    const all: Array<Session> = []
    for await (const page of sessions.list({ signal })) {
      all.push(...page.sessions)
      if (all.length >= maxSessions) break
    }
    listed.value = all
    listProblem.value = ""
    isListRead.value = true
  } catch (error) {
    if (isAbort(error)) return
    listProblem.value = messageOf(error)
    // The token has expired or was revoked. This client receives nothing any longer.
    if (error instanceof Unauthorized) void openSessions()
  }
}

/** The color of a session's state. */
export const toneOf: Readonly<Record<SessionState, string>> = {
  inactive: "",
  activating: "info",
  active: "good",
  reconnecting: "warn",
  deactivating: "info",
  error: "bad"
}
