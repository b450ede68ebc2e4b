/** Apart from the contract: the writer's thread needs it, and must not load the schemas. */
const tenantPrefix = "tenant:"

/** The part of a namespace between `tenant:` and the first `/` or the end; `""` without that prefix. */
export const tenantOf = (namespace: string): string => {
  if (!namespace.startsWith(tenantPrefix)) return ""
  const end = namespace.indexOf("/", tenantPrefix.length)
  return namespace.slice(tenantPrefix.length, end === -1 ? undefined : end)
}
