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

addEventListener("hashchange", () => {
  hash.value = location.hash
})

/** The parts of the fragment, decoded. */
export const route = computed(() => segmentsOf(hash.value))

/** The name of the view. */
export const view = computed(() => route.value[0] ?? "overview")

export const href = (...segments: ReadonlyArray<string>): string => `#/${segments.map(encodeURIComponent).join("/")}`

export const go = (...segments: ReadonlyArray<string>): void => {
  location.hash = href(...segments)
}
