/** A query string's parameters: a text each, or all texts of one that is repeated. */
export const parse = (query: string): Record<string, string | Array<string>> => {
  const params: Record<string, string | Array<string>> = {}
  if (query === "") return params
  for (const [name, value] of new URLSearchParams(query)) {
    const before = Object.hasOwn(params, name) ? params[name] : undefined
    if (before === undefined) {
      Object.defineProperty(params, name, { value, enumerable: true, writable: true, configurable: true })
    } else if (typeof before === "string") params[name] = [before, value]
    else before.push(value)
  }
  return params
}
