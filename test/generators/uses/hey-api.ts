import { createClient, createConfig } from "../generated/hey-api/client/index.ts"
import * as Sdk from "../generated/hey-api/sdk.gen.ts"
import { condition, type Make, wanted } from "./Client.ts"

export const make: Make = (baseUrl, token) => {
  const client = createClient(createConfig({ baseUrl, auth: token }))
  return {
    set: async (path, value, ifMatch) => {
      const headers = condition(ifMatch)
      const { data, error } = await Sdk.setEntry({ client, path, headers, body: { value, ttlMs: 60_000 } })
      return data ?? wanted(error)
    },
    get: async path => {
      const { data, error } = await Sdk.getEntry({ client, path })
      return wanted(data ?? (error === undefined ? undefined : { error: String(Object(error).error) }))
    },
    keys: async namespace =>
      wanted((await Sdk.listEntries({ client, path: { namespace } })).data).items.map(({ key }) => key),
    batch: async (namespace, set, removed) => {
      const { data } = await Sdk.applyBatch({
        client,
        body: {
          operations: [
            { op: "set", namespace, key: set, value: null },
            { op: "delete", namespace, key: removed }
          ]
        }
      })
      return wanted(data).results.length
    },
    changesAfter: async after =>
      wanted((await Sdk.listChanges({ client, query: { after } })).data).changes.map(({ seq }) => seq),
    remove: async path => wanted((await Sdk.deleteEntry({ client, path })).data).deleted
  }
}
