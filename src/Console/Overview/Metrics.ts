/** Polls the metrics of the service, and keeps the figures of the last 15 minutes. */
import { signal } from "@preact/signals"
import { names, routes } from "../Service/Page.ts"
import { pause } from "../Service/Pause.ts"
import { between, type Figures, fromJson, fromPrometheus, isRestarted, type Snapshot } from "./Figures.ts"

/** The figures, oldest first. */
export const history = signal<ReadonlyArray<Figures>>([])

/** The latest reading; `undefined` before the first one. */
export const latest = signal<Snapshot | undefined>(undefined)

/** Whether metrics are available: `hidden` without a route, `locked` if they require a separate token. */
export const metricsState = signal<"unknown" | "shown" | "hidden" | "locked">("unknown")

/** Why the token for metrics was refused; `""` if it was not. */
export const metricsRefusal = signal("")

/** Whether the service runs in dev mode. Only then it has metrics as JSON. */
export const isDevMode = signal(false)

const intervalMs = 2000
const maxFigures = 450
export const isTryingToken = signal(false)

let token = sessionStorage.getItem(names.metricsToken) ?? ""

export const useMetricsToken = (text: string): void => {
  token = text
  sessionStorage.setItem(names.metricsToken, text)
  isTryingToken.value = true
  tokenSet.abort()
}

/** Ends the pause before the next reading. */
let tokenSet = new AbortController()

const ask = (url: string, authorization: Readonly<Record<string, string>>) =>
  fetch(url, { cache: "no-store", headers: authorization, signal: AbortSignal.timeout(4000) })

/** Whether the route does not exist. Other failures may be temporary. */
const isAbsent = ({ ok, status }: Response): boolean => {
  if (!ok && status !== 404) throw new Error(`Metrics failed with status ${status}`)
  return !ok
}

const read = async (): Promise<Snapshot | "hidden" | "locked"> => {
  if (routes.metricsJson !== undefined && (isDevMode.value || metricsState.value === "unknown")) {
    const response = await ask(routes.metricsJson, {})
    isDevMode.value = !isAbsent(response)
    if (response.ok) return fromJson(await response.text(), Date.now())
  }
  // Without a token the answer is known to be 401, which the browser would report as an error of the page.
  if (routes.lockedMetrics !== undefined && token === "") return "locked"
  const prometheus = routes.metrics ?? routes.lockedMetrics
  if (prometheus === undefined) return "hidden"
  const response = await ask(prometheus, token === "" ? {} : { authorization: `Bearer ${token}` })
  if (response.status === 401) {
    metricsRefusal.value = token === "" ? "" : "Invalid token."
    return "locked"
  }
  return isAbsent(response) ? "hidden" : fromPrometheus(await response.text(), Date.now())
}

const take = (snapshot: Snapshot): void => {
  const before = latest.value
  latest.value = snapshot
  if (before === undefined || snapshot.at <= before.at || isRestarted(before, snapshot)) return
  history.value = [...history.value.slice(1 - maxFigures), between(before, snapshot)]
}

const isWorthReading = (): boolean =>
  isTryingToken.value || metricsState.value === "unknown" || metricsState.value === "shown"

/** Polls until the signal is aborted, while the page is visible. Hidden or locked metrics wait for a new token. */
export const watchMetrics = async (ended: AbortSignal): Promise<void> => {
  while (!ended.aborted) {
    tokenSet = new AbortController()
    if (!document.hidden && isWorthReading()) {
      try {
        const found = await read()
        metricsState.value = typeof found === "string" ? found : "shown"
        isTryingToken.value = false
        if (typeof found !== "string") take(found)
      } catch {
        // The health reports that the service is unavailable.
      }
    }
    await pause(intervalMs, AbortSignal.any([ended, tokenSet.signal]))
  }
}
