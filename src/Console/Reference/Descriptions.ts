/** The documents that describe the service. They require a key. */
import { signal } from "@preact/signals"
import { routes } from "../Service/Routes.ts"
import { names } from "../Service/TabStorage.ts"
import { download } from "../Widgets/Download.ts"

/** The parts of the OpenAPI document that the page uses. */
export interface OpenApiDocument {
  readonly paths: Readonly<Record<string, Readonly<Record<string, OpenApiOperation>>>>
  readonly components?: { readonly securitySchemes?: Readonly<Record<string, unknown>> }
}

export interface OpenApiOperation {
  readonly responses: Readonly<Record<string, { readonly content?: Readonly<Record<string, unknown>> }>>
}

interface Described {
  readonly document: OpenApiDocument
  readonly key: string
}

/** The OpenAPI document, and the key that it was read with. */
export const described = signal<Described | undefined>(undefined)

/** Why the last request failed; `""` if it did not. */
export const problem = signal("")

/** Whether a request is in progress. */
export const isBusy = signal(false)

class Refused extends Error {}

const read = async (address: string, key: string): Promise<Response> => {
  const response = await fetch(address, { headers: { authorization: `Bearer ${key}` } }).catch(() => {
    throw new Refused("The service does not answer.")
  })
  if (response.ok) return response
  if (response.status === 401) throw new Refused("Invalid key.")
  const { error = `The service answered ${response.status}.` } = await response.json().catch(() => ({}))
  throw new Refused(error)
}

const attempt = async (work: () => Promise<void>): Promise<void> => {
  isBusy.value = true
  problem.value = ""
  try {
    await work()
  } catch (error) {
    problem.value = error instanceof Refused ? error.message : "The answer of the service is invalid."
  } finally {
    isBusy.value = false
  }
}

/** Reads the OpenAPI document with a key. A valid key is stored for the tab. */
export const describe = (key: string): Promise<void> =>
  attempt(async () => {
    if (routes.openApi === undefined) throw new Refused("This application has no OpenAPI document.")
    const document: OpenApiDocument = await (await read(routes.openApi, key)).json()
    sessionStorage.setItem(names.credential, key)
    described.value = { document, key }
  })

/** Reads it with the stored key, if any. */
export const resume = (): void => {
  const key = sessionStorage.getItem(names.credential)
  if (key !== null) void describe(key)
}

/** Downloads a document as a file. */
export const save = (address: string, name: string): Promise<void> =>
  attempt(async () => {
    const response = await read(address, described.peek()?.key ?? "")
    download(await response.blob(), name)
  })
