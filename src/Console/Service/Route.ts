/**
 * The view that the page shows, as its fragment has it: `#/store/<namespace>/<key>`. The service knows one page only, so
 * that the console works under any prefix.
 */
import { computed, signal } from "@preact/signals"

const segmentsOf = (hash: string): ReadonlyArray<string> => {
  try {
    return hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent)
  } catch {
    return []
  }
}

const hash = signal(location.hash)

/** Asks the user whether to leave the view; it is left by calling `leave`. */
type Ask = (leave: () => void) => void

let ask: Ask | undefined

addEventListener("hashchange", () => {
  const { hash: wanted, pathname, search } = location
  if (ask === undefined || wanted === hash.value) {
    hash.value = wanted
    return
  }
  history.replaceState(undefined, "", hash.value === "" ? pathname + search : hash.value)
  ask(() => leaveFor(wanted))
})

addEventListener("beforeunload", event => {
  if (ask !== undefined) event.preventDefault()
})

/** Has the user asked before the view is left, since something would be lost. Returns what ends that. */
export const guard = (wanted: Ask): (() => void) => {
  ask = wanted
  return () => {
    if (ask === wanted) ask = undefined
  }
}

const leaveFor = (wanted: string): void => {
  ask = undefined
  location.hash = wanted
}

/** The parts of the fragment, decoded. */
export const route = computed(() => segmentsOf(hash.value))

/** The name of the view. */
export const view = computed(() => route.value[0] ?? "overview")

export const href = (...segments: ReadonlyArray<string>): string => `#/${segments.map(encodeURIComponent).join("/")}`

export const go = (...segments: ReadonlyArray<string>): void => {
  location.hash = href(...segments)
}

/** Goes without asking. */
export const leave = (...segments: ReadonlyArray<string>): void => leaveFor(href(...segments))
