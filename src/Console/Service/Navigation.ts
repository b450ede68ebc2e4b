/** The view, in the fragment of the address, for any prefix: `#/store/<namespace>/<key>?tenant=<id>`. */
import { computed, signal } from "@preact/signals"

/** The path of a fragment, and the choices after it, with their `?`. */
const pathOf = (hash: string): string => hash.split("?", 1)[0]!
const choicesOf = (hash: string): string => hash.slice(pathOf(hash).length)

const segmentsOf = (hash: string): ReadonlyArray<string> => {
  try {
    return pathOf(hash).replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent)
  } catch {
    return []
  }
}

const hash = signal(location.hash)
type Guard = (leave: () => void) => void

/** The latest guard asks first. */
let guards: ReadonlyArray<Guard> = []

addEventListener("hashchange", () => {
  const { hash: wanted, pathname, search } = location
  // Choices change nothing that guards protect.
  if (guards.length === 0 || pathOf(wanted) === pathOf(hash.value)) {
    hash.value = wanted
    return
  }
  history.replaceState(undefined, "", hash.value === "" ? pathname + search : hash.value)
  navigate(wanted)
})

addEventListener("beforeunload", event => {
  if (guards.length > 0) event.preventDefault()
})

/** Calls the guard before the user leaves the view. Returns a function that removes the guard. */
export const guard = (added: Guard): (() => void) => {
  guards = [...guards, added]
  return () => {
    guards = guards.filter(other => other !== added)
  }
}

export const afterGuards = (act: () => void): void => {
  const latest = guards.at(-1)
  if (latest === undefined) {
    act()
    return
  }
  latest(() => {
    guards = guards.filter(other => other !== latest)
    afterGuards(act)
  })
}

const navigate = (wanted: string): void =>
  afterGuards(() => {
    location.hash = wanted
  })

export const route = computed(() => segmentsOf(hash.value))
export const choices = computed(() => new URLSearchParams(choicesOf(hash.value)))
export const view = computed(() => route.value[0] ?? "overview")

/** The address of a path. Choices are kept within the view. */
export const href = (...segments: ReadonlyArray<string>): string =>
  `#/${segments.map(encodeURIComponent).join("/")}${segments[0] === view.value ? choicesOf(hash.value) : ""}`

export const go = (...segments: ReadonlyArray<string>): void => {
  location.hash = href(...segments)
}

/** Goes without calling the guards. */
export const leave = (...segments: ReadonlyArray<string>): void => {
  guards = []
  location.hash = href(...segments)
}

/** Sets a choice, or removes it if the value is `undefined`. The path stays, and the browser's Back undoes it. */
export const choose = (name: string, value: string | undefined): void => {
  const chosen = new URLSearchParams(choices.peek())
  if (value === undefined) chosen.delete(name)
  else chosen.set(name, value)
  const query = String(chosen)
  const wanted = pathOf(hash.peek()) + (query === "" ? "" : `?${query}`)
  if (wanted === hash.peek()) return
  history.pushState(undefined, "", wanted)
  hash.value = wanted
}
