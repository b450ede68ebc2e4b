/**
 * Finds what serves a method and path: a tree of segments, static ones before parameters.
 */

interface Node<A> {
  readonly statics: Map<string, Node<A>>
  parameter: Node<A> | undefined
  readonly methods: Map<string, Route<A>>
}

interface Route<A> {
  readonly names: ReadonlyArray<string>
  readonly value: A
}

/** A route that took a path, and the path's parameters as the client wrote them. */
export interface Match<A> {
  readonly value: A
  readonly params: Record<string, string>
}

const node = <A>(): Node<A> => ({ statics: new Map(), parameter: undefined, methods: new Map() })

/** Routes by method and path template, as in `/kv/:namespace/:key`. */
export class Router<A> {
  readonly #root = node<A>()

  add(method: string, template: string, value: A): void {
    const names: Array<string> = []
    let at = this.#root
    for (const segment of template.split("/").slice(1)) {
      if (segment.startsWith(":")) {
        names.push(segment.slice(1))
        at.parameter ??= node()
        at = at.parameter
      } else {
        const next = at.statics.get(segment) ?? node<A>()
        at.statics.set(segment, next)
        at = next
      }
    }
    at.methods.set(method, { names, value })
  }

  /** The route that takes a path, which must be percent-encoded UTF-8; HEAD goes wherever GET does. */
  find(method: string, path: string): Match<A> | undefined {
    if (path.charCodeAt(0) !== 0x2f) return undefined
    const values: Array<string> = []
    const route = this.#walk(this.#root, path, 1, method, values)
    if (route === undefined) return undefined
    const params: Record<string, string> = {}
    for (let index = 0; index < route.names.length; index++) params[route.names[index]!] = values[index]!
    return { value: route.value, params }
  }

  #walk(at: Node<A>, path: string, from: number, method: string, values: Array<string>): Route<A> | undefined {
    const slash = path.indexOf("/", from)
    const segment = slash === -1 ? path.slice(from) : path.slice(from, slash)
    const next = at.statics.get(segment.includes("%") ? decodeURIComponent(segment) : segment)
    if (next !== undefined) {
      const found = slash === -1 ? routeOf(next, method) : this.#walk(next, path, slash + 1, method, values)
      if (found !== undefined) return found
    }
    if (at.parameter === undefined) return undefined
    const depth = values.push(segment)
    const found =
      slash === -1 ? routeOf(at.parameter, method) : this.#walk(at.parameter, path, slash + 1, method, values)
    if (found === undefined) values.length = depth - 1
    return found
  }
}

const routeOf = <A>(at: Node<A>, method: string): Route<A> | undefined =>
  at.methods.get(method) ?? (method === "HEAD" ? at.methods.get("GET") : undefined)

/** The parameters of a query string: a text each, or all texts of one that is repeated. */
export const parseQuery = (query: string): Record<string, string | Array<string>> => {
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
