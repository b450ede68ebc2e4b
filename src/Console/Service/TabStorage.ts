/** What a tab keeps, for all pages of the service that are opened in it. */

/** The names in `sessionStorage`, where other pages of the same origin may keep things of their own. */
export const names = {
  credential: "causeway.credential",
  sessionToken: "causeway.session-token",
  metricsToken: "causeway.metrics-token",
  namespaces: "causeway.namespaces"
} as const

/** Forgets what the tab keeps. */
export const forget = (): void => {
  for (const name of Object.values(names)) sessionStorage.removeItem(name)
}

/** Forgets the credential, and all that was read with it: the page is loaded anew. */
export const signOut = (): void => {
  forget()
  history.replaceState(undefined, "", location.pathname)
  location.reload()
}
