/** Reads the metrics of the service again and again, and keeps the figures of the last quarter of an hour. */
import { signal } from "@preact/signals"
import { pause } from "../Service/Pause.ts"
import { routes } from "../Service/Routes.ts"
import { between, type Figures, isRestarted } from "./Figures.ts"
import { fromJson, fromPrometheus, type Snapshot } from "./Samples.ts"

/** The figures so far, the oldest first. */
export const history = signal<ReadonlyArray<Figures>>([])

export const latest = signal<Snapshot | undefined>(undefined)

/** Whether there are metrics: `hidden` where no route shows them, `locked` where they want a token of their own. */
export const metricsState = signal<"unknown" | "shown" | "hidden" | "locked">("unknown")

/** Whether the service runs in dev mode, which alone has metrics as JSON. */
export const isDevMode = signal(false)

const everyMs = 2000
const kept = 450
const storageName = "causeway.metrics-token"

let token = sessionStorage.getItem(storageName) ?? ""

/** Takes the token of `/metrics`, for this tab. */
export const useMetricsToken = (given: string): void => {
  token = given
  sessionStorage.setItem(storageName, given)
  metricsState.value = "unknown"
}

const ask = (url: string, authorization: Readonly<Record<string, string>>) =>
  fetch(url, { cache: "no-store", headers: authorization, signal: AbortSignal.timeout(4000) })

/** One reading, or why there is none. */
const read = async (): Promise<Snapshot | "hidden" | "locked"> => {
  if (routes.metricsJson !== undefined && (isDevMode.value || metricsState.value === "unknown")) {
    const response = await ask(routes.metricsJson, {})
    isDevMode.value = response.ok
    if (response.ok) return fromJson(await response.text(), Date.now())
  }
  if (routes.metrics === undefined) return "hidden"
  const response = await ask(routes.metrics, token === "" ? {} : { authorization: `Bearer ${token}` })
  if (response.status === 401) return "locked"
  if (!response.ok) return "hidden"
  return fromPrometheus(await response.text(), Date.now())
}

const take = (snapshot: Snapshot): void => {
  const before = latest.value
  latest.value = snapshot
  if (before === undefined || snapshot.at <= before.at || isRestarted(before, snapshot)) return
  history.value = [...history.value.slice(1 - kept), between(before, snapshot)]
}

/** Reads until the signal ends it, while somebody sees the page. What is hidden stays so until a token is given. */
export const watchMetrics = async (ended: AbortSignal): Promise<void> => {
  while (!ended.aborted) {
    const isSettled = metricsState.value === "hidden" || metricsState.value === "locked"
    if (!document.hidden && !isSettled) {
      try {
        const found = await read()
        metricsState.value = typeof found === "string" ? found : "shown"
        if (typeof found !== "string") take(found)
      } catch {
        // The service does not answer; the health shows it.
      }
    }
    await pause(everyMs, ended)
  }
}
