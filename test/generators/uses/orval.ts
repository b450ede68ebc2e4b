import * as Orval from "../generated/orval.ts"
import { condition, type Make, wanted } from "./Client.ts"

export const make: Make = (url, token) => {
  process.env.CAUSEWAY_URL = url
  const headers = { authorization: `Bearer ${token}` }
  return {
    set: async ({ key, namespace }, value, ifMatch) => {
      const init = { headers: { ...headers, ...condition(ifMatch) } }
      return (await Orval.setEntry(namespace, key, { value, ttlMs: 60_000 }, init)).data
    },
    get: async ({ key, namespace }) => wanted((await Orval.getEntry(namespace, key, { headers })).data ?? undefined),
    keys: async namespace => {
      const answer = await Orval.listEntries(namespace, {}, { headers })
      return answer.status === 200 ? answer.data.items.map(({ key }) => key) : wanted<never>(undefined)
    },
    batch: async (namespace, set, removed) => {
      const operations = [
        { op: "set" as const, namespace, key: set, value: null },
        { op: "delete" as const, namespace, key: removed }
      ]
      const answer = await Orval.applyBatch({ operations }, { headers })
      return answer.status === 200 ? answer.data.results.length : wanted<never>(undefined)
    },
    changesAfter: async after => {
      const answer = await Orval.listChanges({ after }, { headers })
      return answer.status === 200 ? answer.data.changes.map(({ seq }) => seq) : wanted<never>(undefined)
    },
    remove: async ({ key, namespace }) => {
      const answer = await Orval.deleteEntry(namespace, key, {}, { headers })
      return answer.status === 200 ? answer.data.deleted : wanted<never>(undefined)
    }
  }
}
