/** The storage of a tab, which all pages of the service in the tab share. */

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
