/** The sessions of the user's tenant, by what they do. */
import { signal } from "@preact/signals"
import { type Session, type Sessions, Unauthorized } from "../../Client/Client.ts"
import { openSessions, sessions } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { choices, choose } from "../Service/Navigation.ts"
import { pause } from "../Service/Pause.ts"

/** What a list of sessions is limited to, with the filter of the service. */
export const filters = {
  all: { title: "All", query: {} },
  waiting: { title: "Waiting", query: { waiting: true } },
  running: { title: "Running", query: { running: true, waiting: false } },
  failed: { title: "Failed", query: { failed: true } },
  idle: { title: "Idle", query: { waiting: false, running: false, failed: false } }
} as const

export type Filter = keyof typeof filters

const isFilter = (text: string): text is Filter => Object.hasOwn(filters, text)

/** The filter in the address. */
export const filterOf = (): Filter => {
  const only = choices.value.get("only") ?? "all"
  return isFilter(only) ? only : "all"
}

export const chooseFilter = (filter: Filter): void => choose("only", filter === "all" ? undefined : filter)

export const listed = signal<ReadonlyArray<Session>>([])
export const listProblem = signal("")

/** The filter of the list that is shown; `undefined` before the first one. */
export const listedFilter = signal<Filter | undefined>(undefined)

/** The number of sessions that wait for a person; `undefined` while it is not known. */
export const waitingCount = signal<number | undefined>(undefined)

/** The sessions that are listed. Others are found by their ids. */
export const maxSessions = 2000

/** The sessions that wait and are listed first, in all lists. Their number is shown up to this one. */
export const maxWaiting = 100

/** Reads sessions, the last active first. One that is active in the meantime comes again. */
export const readSessions = async (
  sessions: Sessions,
  filter: Filter,
  most: number,
  signal?: AbortSignal
): Promise<ReadonlyMap<string, Session>> => {
  const all = new Map<string, Session>()
  for await (const page of sessions.list({ ...(signal && { signal }), order: "activity", ...filters[filter].query })) {
    for (const session of page.sessions) all.set(session.id, session)
    if (all.size >= most) break
  }
  return all
}

/** Reads the list again: the sessions that wait for a person first, then the others. */
export const refreshSessions = async (sessions: Sessions, filter: Filter, signal: AbortSignal): Promise<void> => {
  try {
    const waiting = await readSessions(sessions, "waiting", filter === "waiting" ? maxSessions : maxWaiting, signal)
    waitingCount.value = waiting.size
    const others =
      filter === "waiting" ? new Map<string, Session>() : await readSessions(sessions, filter, maxSessions, signal)
    listed.value = [
      ...(filter === "all" ? new Map([...waiting, ...others]) : filter === "waiting" ? waiting : others).values()
    ]
    listedFilter.value = filter
    listProblem.value = ""
  } catch (error) {
    if (isAbort(error)) return
    listProblem.value = messageOf(error)
    // The token has expired or was revoked. This client receives nothing any longer.
    if (error instanceof Unauthorized) void openSessions()
  }
}

const intervalMs = 10_000

/** Keeps the number of sessions that wait up to date, also in other views, once sessions are open. */
export const watchWaiting = async (ended: AbortSignal): Promise<void> => {
  while (!ended.aborted) {
    const { value } = sessions
    if (value !== undefined && !document.hidden) {
      try {
        waitingCount.value = (await readSessions(value, "waiting", maxWaiting, ended)).size
      } catch {
        // The view of the sessions reports it.
      }
    }
    await pause(value === undefined ? 1000 : intervalMs, ended)
  }
}
