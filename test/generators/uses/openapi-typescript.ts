import createClient from "openapi-fetch"
import type { paths } from "../generated/openapi-typescript.ts"
import { condition, type Make, type Outcome, wanted } from "./Client.ts"

const entry = "/api/v1/kv/{namespace}/{key}"

export const make: Make = (baseUrl, token) => {
  const client = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${token}` } })
  const outcome = ({ data, error }: { data?: Outcome; error?: Outcome }) => wanted(data ?? error)
  return {
    set: async (path, value, ifMatch) => {
      return outcome(
        await client.PUT(entry, { params: { path, header: condition(ifMatch) }, body: { value, ttlMs: 60_000 } })
      )
    },
    get: async path => outcome(await client.GET(entry, { params: { path } })),
    keys: async namespace => {
      const { data } = await client.GET("/api/v1/kv/{namespace}", { params: { path: { namespace }, query: {} } })
      return wanted(data).items.map(({ key }) => key)
    },
    batch: async (namespace, set, removed) => {
      const operations = [
        { op: "set", namespace, key: set, value: null } as const,
        { op: "delete", namespace, key: removed } as const
      ]
      const { data } = await client.POST("/api/v1/batch", { body: { operations, actor: "batch" } })
      return wanted(data).results.length
    },
    changesAfter: async after => {
      const { data } = await client.GET("/api/v1/changes", { params: { query: { after } } })
      return wanted(data).changes.map(({ seq }) => seq)
    },
    remove: async path => wanted((await client.DELETE(entry, { params: { path } })).data).deleted
  }
}
