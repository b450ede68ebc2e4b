/** The health of the service, asked for again and again while the page is seen. */
import { signal } from "@preact/signals"
import { pause } from "./Pause.ts"
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

const usualMs = 5000
const failingMs = 1000
const answerMs = 4000

/** Asks until the signal ends it. A page that nobody sees does not ask. */
export const watchHealth = async (ended: AbortSignal): Promise<void> => {
  while (!ended.aborted) {
    if (!document.hidden) await ask()
    await pause(isReachable.value === false ? failingMs : usualMs, ended)
  }
}

const ask = async (): Promise<void> => {
  if (routes.health === undefined) return
  try {
    const response = await fetch(routes.health, { cache: "no-store", signal: AbortSignal.timeout(answerMs) })
    const report = await response.json()
    if (typeof report.status === "string") health.value = report
    isReachable.value = typeof report.status === "string"
  } catch {
    isReachable.value = false
  }
}
