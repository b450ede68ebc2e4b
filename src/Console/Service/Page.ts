/** What the service writes into the page, and what all pages of the tab share. */
import type { Routes } from "../../Operations/Pages/Paths.ts"

const { content } = document.querySelector<HTMLMetaElement>('meta[name="causeway-routes"]')!
const given: Readonly<Record<string, string>> = JSON.parse(content)

/** Absolute paths. Routes that the application does not have are absent. */
export const routes = Object.fromEntries(
  Object.entries(given).map(([name, path]) => [name, new URL(path, location.href).pathname])
) as Partial<Routes> & Pick<Routes, "root">

/** The names in `sessionStorage`, which other pages of the origin may use too. */
export const names = {
  credential: "causeway.credential",
  sessionToken: "causeway.session-token",
  metricsToken: "causeway.metrics-token",
  namespaces: "causeway.namespaces"
} as const

/** Removes everything from the storage. */
export const clear = (): void => {
  for (const name of Object.values(names)) sessionStorage.removeItem(name)
}

/** Removes the credential and all that was read with it, by loading the page again, which nothing may prevent. */
export const signOut = (): void => {
  clear()
  history.replaceState(undefined, "", location.pathname)
  location.reload()
}
