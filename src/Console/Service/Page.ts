/** The page: what the service writes into it, what all pages of the tab share, its frames, and its downloads. */
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
  namespaces: "causeway.namespaces"
} as const

export const clear = (): void => {
  for (const name of Object.values(names)) sessionStorage.removeItem(name)
}

/** Removes the credential and all that was read with it, by loading the page again, which nothing may prevent. */
export const signOut = (): void => {
  clear()
  history.replaceState(undefined, "", location.pathname)
  location.reload()
}

export class FrameWork {
  #frame = 0

  constructor(private readonly work: () => void) {}

  request(): void {
    if (this.#frame !== 0) return
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0
      this.work()
    })
  }

  cancel(): void {
    cancelAnimationFrame(this.#frame)
    this.#frame = 0
  }
}

export const download = (blob: Blob, name: string): void => {
  const url = URL.createObjectURL(blob)
  const link = document.createElement("a")
  link.href = url
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}
