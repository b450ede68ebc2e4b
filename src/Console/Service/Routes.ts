/** The routes of the service, which it writes into the page. */
import type { Routes } from "../../Pages/Paths.ts"

const { content } = document.querySelector<HTMLMetaElement>('meta[name="causeway-routes"]')!
const given: Readonly<Record<string, string>> = JSON.parse(content)

/** Absolute paths. Routes that the application does not have are absent. */
export const routes = Object.fromEntries(
  Object.entries(given).map(([name, path]) => [name, new URL(path, location.href).pathname])
) as Partial<Routes> & Pick<Routes, "root">
