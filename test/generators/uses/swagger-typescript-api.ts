import { Api, type Entry } from "../generated/swagger-typescript-api.ts"
import { condition, type Make, type Outcome } from "./Client.ts"

/** This generator puts names into paths as they are. */
const name = encodeURIComponent

export const make: Make = (baseUrl, token) => {
  const { api } = new Api({
    baseUrl,
    securityWorker: () => ({ headers: { authorization: `Bearer ${token}` } })
  })
  const outcome = (answer: Promise<{ data: Entry; error: unknown }>): Promise<Outcome> =>
    answer.then(
      ({ data }) => data,
      ({ error }: { error: { error: string } }) => error
    )
  return {
    set: ({ key, namespace }, value, ifMatch) =>
      outcome(api.setEntry(name(namespace), name(key), { value, ttlMs: 60_000 }, { headers: condition(ifMatch) })),
    get: ({ key, namespace }) => outcome(api.getEntry(name(namespace), name(key))),
    keys: async namespace => (await api.listEntries(name(namespace))).data.items.map(({ key }) => key),
    batch: async (namespace, set, removed) => {
      const { data } = await api.applyBatch({
        operations: [
          { op: "set", namespace, key: set, value: null },
          { op: "delete", namespace, key: removed }
        ]
      })
      return data.results.length
    },
    changesAfter: async after => (await api.listChanges({ after })).data.changes.map(({ seq }) => seq),
    remove: async ({ key, namespace }) => (await api.deleteEntry(name(namespace), name(key))).data.deleted
  }
}
