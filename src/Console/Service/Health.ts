/** The health of the service, which is polled while the page is visible. */
import { signal } from "@preact/signals"
import { routes } from "./Page.ts"
import { pause, retryNow } from "./Pause.ts"
import { source, take } from "./Source.ts"

export type Status = "ok" | "degraded" | "unhealthy"

export interface Dependency {
  readonly name: string
  readonly status: Status
  readonly latencyMs?: number
  readonly error?: string
}

interface Report {
  readonly status: Status
  readonly uptime: number
  readonly connections: number
  readonly memory: { readonly rss: number }
  readonly dependencies: ReadonlyArray<Dependency>
  readonly version: string
}

export const health = source<Report>()

/** Whether the service has answered the last request; `undefined` before the first one. */
export const isReachable = signal<boolean | undefined>(undefined)

/** Whether the store is ready, which the health does not include; `undefined` at first, and without the route. */
export const isStoreReady = signal<boolean | undefined>(undefined)

/** Milliseconds between requests while the service is available. After a lost connection the minimum applies. */
const intervalMs = 5000
const minIntervalMs = 500

/** The first and the longest backoff while the service is unavailable, in milliseconds. It doubles, with jitter. */
const firstBackoffMs = 300
const maxBackoffMs = 2000

const timeoutMs = 4000

let check = new AbortController()

/** Requests the health at once, because a connection was lost. */
export const checkHealth = (): void => {
  // If the service is known to be unavailable, the backoff applies, however many connections are lost.
  if (isReachable.value !== false) check.abort()
}

const untilNext = async (failures: number, ended: AbortSignal): Promise<void> => {
  if (failures > 0) {
    const bound = Math.min(maxBackoffMs, firstBackoffMs * 2 ** (failures - 1))
    return pause(bound * (0.5 + Math.random() / 2), ended)
  }
  await pause(minIntervalMs, ended)
  await pause(intervalMs - minIntervalMs, AbortSignal.any([ended, check.signal]))
}

/** Polls the health until the signal is aborted, while the page is visible. */
export const watchHealth = async (ended: AbortSignal): Promise<void> => {
  let failures = 0
  while (!ended.aborted) {
    if (!document.hidden) {
      check = new AbortController()
      await poll()
      failures = isReachable.value === false ? failures + 1 : 0
    }
    await untilNext(failures, ended)
  }
}

const read = async (route: string) => {
  const response = await fetch(route, { cache: "no-store", signal: AbortSignal.timeout(timeoutMs) })
  return response.json()
}

/** A store without an answer in time is not ready. */
const readStore = async (): Promise<boolean | undefined> => {
  if (routes.ready === undefined) return undefined
  try {
    return (await read(routes.ready)).ok === true
  } catch {
    return false
  }
}

const poll = async (): Promise<void> => {
  if (routes.health === undefined) return
  const wasUnreachable = isReachable.value === false
  try {
    const [report, isReady] = await Promise.all([read(routes.health), readStore()])
    isReachable.value = typeof report.status === "string"
    take(health, isReachable.value ? report : null)
    isStoreReady.value = isReady
  } catch {
    isReachable.value = false
    take(health, null)
  }
  if (wasUnreachable && isReachable.value) retryNow()
}
