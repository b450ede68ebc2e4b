/** The namespaces of the gateway's own records in the store. It imports nothing, so that pages can import it. */

/** What the gateway keeps: sessions by their ids, and the names that clients have given to sessions. */
const kinds = ["sessions", "threads"] as const

/** The namespace of a tenant's records of a kind. */
export const ofGateway = (tenant: string, kind: (typeof kinds)[number]): string => `tenant:${tenant}/${kind}`

/** Whether a namespace has records of the gateway. A change of another client changes sessions without it. */
export const isOfGateway = (namespace: string): boolean => {
  const [tenant = ""] = namespace.split("/", 1)
  return kinds.some(kind => namespace === ofGateway(tenant.slice("tenant:".length), kind))
}
