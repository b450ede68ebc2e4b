// Apart from the contract: the writer's thread needs it, and must not load the schemas.

const prefix = "tenant:"

/** The part of a namespace between `tenant:` and the first `/` or the end; `""` without that prefix. */
export const tenantOf = (namespace: string): string => {
  if (!namespace.startsWith(prefix)) return ""
  const end = namespace.indexOf("/", prefix.length)
  return namespace.slice(prefix.length, end === -1 ? undefined : end)
}
