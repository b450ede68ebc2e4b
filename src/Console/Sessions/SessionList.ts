/** The sessions of the user's tenant. */
import { signal } from "@preact/signals"
import { type Session, type Sessions, Unauthorized } from "../../Client/Client.ts"
import { openSessions } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"

export const listed = signal<ReadonlyArray<Session>>([])

export const listProblem = signal("")

export const isListRead = signal(false)

/** The most sessions that are listed: the newest. */
const most = 2000

/** Lists the sessions anew, the newest first. */
export const refreshSessions = async (sessions: Sessions, signal: AbortSignal): Promise<void> => {
  try {
    const all: Array<Session> = []
    for await (const page of sessions.list({ signal })) {
      all.push(...page.sessions)
      if (all.length >= most) break
    }
    listed.value = all
    listProblem.value = ""
    isListRead.value = true
  } catch (error) {
    if (isAbort(error)) return
    listProblem.value = messageOf(error)
    // The token has expired, or is not valid any more: nothing comes over this client again.
    if (error instanceof Unauthorized) void openSessions()
  }
}
