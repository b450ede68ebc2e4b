/**
 * The view that the page shows, as its fragment has it: `#/store/<namespace>/<key>?tenant=<id>`. The service knows one
 * page only, so that the console works under any prefix.
 */
import { computed, signal } from "@preact/signals"

/** The place that a fragment names, and what is chosen there, with its `?`. */
const placeOf = (hash: string): string => hash.split("?", 1)[0]!
const choicesOf = (hash: string): string => hash.slice(placeOf(hash).length)

const segmentsOf = (hash: string): ReadonlyArray<string> => {
  try {
    return placeOf(hash).replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent)
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
  // Nothing is lost where the place stays.
  if (ask === undefined || placeOf(wanted) === placeOf(hash.value)) {
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

/** The parts of the place, decoded. */
export const route = computed(() => segmentsOf(hash.value))

/** What is chosen, by name. */
export const choices = computed(() => new URLSearchParams(choicesOf(hash.value)))

/** The name of the view. */
export const view = computed(() => route.value[0] ?? "overview")

/** The address of a place. Within the view what is chosen stays. */
export const href = (...segments: ReadonlyArray<string>): string =>
  `#/${segments.map(encodeURIComponent).join("/")}${segments[0] === view.value ? choicesOf(hash.value) : ""}`

export const go = (...segments: ReadonlyArray<string>): void => {
  location.hash = href(...segments)
}

/** Goes without asking. */
export const leave = (...segments: ReadonlyArray<string>): void => leaveFor(href(...segments))

/** Chooses something, or nothing any more where the value is `undefined`. The place stays, and the way back is kept. */
export const choose = (name: string, value: string | undefined): void => {
  const chosen = new URLSearchParams(choices.peek())
  if (value === undefined) chosen.delete(name)
  else chosen.set(name, value)
  const query = String(chosen)
  const wanted = placeOf(hash.peek()) + (query === "" ? "" : `?${query}`)
  if (wanted === hash.peek()) return
  history.pushState(undefined, "", wanted)
  hash.value = wanted
}
