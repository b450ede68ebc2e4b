/** The health of the service, asked for again and again while the page is seen. */
import { signal } from "@preact/signals"
import { pause, tryAgain } from "./Pause.ts"
import { routes } from "./Routes.ts"

export type Status = "ok" | "degraded" | "unhealthy"

export interface Dependency {
  readonly name: string
  readonly status: Status
  readonly latencyMs?: number
  readonly error?: string
}

export interface Report {
  readonly status: Status
  /** Milliseconds. */
  readonly uptime: number
  readonly connections: number
  readonly memory: { readonly rss: number; readonly heapUsed: number; readonly heapTotal: number }
  readonly dependencies: ReadonlyArray<Dependency>
  readonly version: string
}

export const health = signal<Report | undefined>(undefined)

/** Whether the service has answered the last time it was asked; unknown at first. */
export const isReachable = signal<boolean | undefined>(undefined)

/** Whether the store answers, of which the health does not tell; unknown at first, and where there is no such route. */
export const isStoreReady = signal<boolean | undefined>(undefined)

/** Milliseconds between questions: while the service answers, and the least where a connection was lost. */
const usualMs = 5000
const leastMs = 500

/** Bounds of the pauses while it does not answer, in milliseconds: each is twice the one before, and all are random. */
const firstMs = 300
const longestMs = 2000

const answerMs = 4000

let doubts = new AbortController()

/** Has the health asked for at once, as a connection was lost. */
export const doubt = (): void => {
  // A service that is known to be away is asked at its own pace, however many connections try to come back.
  if (isReachable.value !== false) doubts.abort()
}

/** Waits for the time of the next question. */
const untilNext = async (failures: number, ended: AbortSignal): Promise<void> => {
  if (failures > 0) {
    const bound = Math.min(longestMs, firstMs * 2 ** (failures - 1))
    return pause(bound * (0.5 + Math.random() / 2), ended)
  }
  await pause(leastMs, ended)
  await pause(usualMs - leastMs, AbortSignal.any([ended, doubts.signal]))
}

/** Asks until the signal ends it. A page that nobody sees does not ask. */
export const watchHealth = async (ended: AbortSignal): Promise<void> => {
  let failures = 0
  while (!ended.aborted) {
    if (!document.hidden) {
      doubts = new AbortController()
      await ask()
      failures = isReachable.value === false ? failures + 1 : 0
    }
    await untilNext(failures, ended)
  }
}

const read = async (route: string) => {
  const response = await fetch(route, { cache: "no-store", signal: AbortSignal.timeout(answerMs) })
  return response.json()
}

/** A store that does not answer in time is not ready either. */
const askStore = async (): Promise<boolean | undefined> => {
  if (routes.ready === undefined) return undefined
  try {
    return (await read(routes.ready)).ok === true
  } catch {
    return false
  }
}

const ask = async (): Promise<void> => {
  if (routes.health === undefined) return
  const wasAway = isReachable.value === false
  try {
    const [report, isReady] = await Promise.all([read(routes.health), askStore()])
    if (typeof report.status === "string") health.value = report
    isReachable.value = typeof report.status === "string"
    isStoreReady.value = isReady
  } catch {
    isReachable.value = false
  }
  if (wasAway && isReachable.value) tryAgain()
}
