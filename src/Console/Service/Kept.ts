/** What a tab keeps, for all pages of the service that are opened in it. */

/** The names in `sessionStorage`. */
export const names = { credential: "causeway.credential", sessionToken: "causeway.session-token" }

/** Forgets the credential, and all that was read with it: the page is loaded anew. */
export const signOut = (): void => {
  sessionStorage.clear()
  history.replaceState(undefined, "", location.pathname)
  location.reload()
}
