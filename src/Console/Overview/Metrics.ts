/** Reads the metrics of the service again and again, and keeps the figures of the last quarter of an hour. */
import { signal } from "@preact/signals"
import { names } from "../Service/Kept.ts"
import { pause } from "../Service/Pause.ts"
import { routes } from "../Service/Routes.ts"
import { between, type Figures, isRestarted } from "./Figures.ts"
import { fromJson, fromPrometheus, type Snapshot } from "./Samples.ts"

/** The figures so far, the oldest first. */
export const history = signal<ReadonlyArray<Figures>>([])

export const latest = signal<Snapshot | undefined>(undefined)

/** Whether there are metrics: `hidden` where no route shows them, `locked` where they want a token of their own. */
export const metricsState = signal<"unknown" | "shown" | "hidden" | "locked">("unknown")

/** What is wrong with the token that was given for them. */
export const metricsRefusal = signal("")

/** Whether the service runs in dev mode, which alone has metrics as JSON. */
export const isDevMode = signal(false)

const everyMs = 2000
const kept = 450

/** Whether a token that was given is being tried. */
export const isTryingToken = signal(false)

let token = sessionStorage.getItem(names.metricsToken) ?? ""

/** Takes the token of `/metrics`, for this tab. */
export const useMetricsToken = (text: string): void => {
  token = text
  sessionStorage.setItem(names.metricsToken, text)
  isTryingToken.value = true
  given.abort()
}

/** Ends the pause before the next reading. */
let given = new AbortController()

const ask = (url: string, authorization: Readonly<Record<string, string>>) =>
  fetch(url, { cache: "no-store", headers: authorization, signal: AbortSignal.timeout(4000) })

/** Whether there is no such route. Any other failure may pass, as while the service ends. */
const isAbsent = ({ ok, status }: Response): boolean => {
  if (!ok && status !== 404) throw new Error(`The metrics are answered ${status}`)
  return !ok
}

/** One reading, or why there is none. */
const read = async (): Promise<Snapshot | "hidden" | "locked"> => {
  if (routes.metricsJson !== undefined && (isDevMode.value || metricsState.value === "unknown")) {
    const response = await ask(routes.metricsJson, {})
    isDevMode.value = !isAbsent(response)
    if (response.ok) return fromJson(await response.text(), Date.now())
  }
  // Without a token the answer is known, and the browser would report it as an error of the page.
  if (routes.lockedMetrics !== undefined && token === "") return "locked"
  const prometheus = routes.metrics ?? routes.lockedMetrics
  if (prometheus === undefined) return "hidden"
  const response = await ask(prometheus, token === "" ? {} : { authorization: `Bearer ${token}` })
  if (response.status === 401) {
    metricsRefusal.value = token === "" ? "" : "The service does not know this token."
    return "locked"
  }
  return isAbsent(response) ? "hidden" : fromPrometheus(await response.text(), Date.now())
}

const take = (snapshot: Snapshot): void => {
  const before = latest.value
  latest.value = snapshot
  if (before === undefined || snapshot.at <= before.at || isRestarted(before, snapshot)) return
  history.value = [...history.value.slice(1 - kept), between(before, snapshot)]
}

/** Whether another reading can tell more than the last one. */
const isWorthReading = (): boolean =>
  isTryingToken.value || metricsState.value === "unknown" || metricsState.value === "shown"

/** Reads until the signal ends it, while somebody sees the page. What is hidden stays so until a token is given. */
export const watchMetrics = async (ended: AbortSignal): Promise<void> => {
  while (!ended.aborted) {
    given = new AbortController()
    if (!document.hidden && isWorthReading()) {
      try {
        const found = await read()
        metricsState.value = typeof found === "string" ? found : "shown"
        isTryingToken.value = false
        if (typeof found !== "string") take(found)
      } catch {
        // The service does not answer; the health shows it.
      }
    }
    await pause(everyMs, AbortSignal.any([ended, given.signal]))
  }
}
