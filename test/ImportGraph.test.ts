/**
 * The rules of imports within src; types count too. A failure shows the chain of imports that breaks a rule.
 */
import { readdirSync, readFileSync } from "node:fs"
import { dirname, join, relative } from "node:path"
import { fileURLToPath } from "node:url"
import { API } from "typescript/unstable/sync"
import { describe, expect, it } from "vitest"

const root = fileURLToPath(new URL("..", import.meta.url))
const src = join(root, "src")

const files = readdirSync(src, { withFileTypes: true, recursive: true })
  .filter(entry => entry.isFile() && /\.tsx?$/.test(entry.name))
  .map(entry => relative(src, join(entry.parentPath, entry.name)))
  .sort()

/** What each file imports: other files by their path within src, packages and modules of Node by their name. */
const imports: ReadonlyMap<string, ReadonlyArray<string>> = (() => {
  const api = new API({ cwd: root })
  try {
    const openProjects = [root, join(src, "ChatPage"), join(src, "Console")].map(folder =>
      join(folder, "tsconfig.json")
    )
    const projects = api.updateSnapshot({ openProjects }).getProjects()
    const importsOf = (file: string): ReadonlyArray<string> => {
      const parsed = projects.map(({ program }) => program.getSourceFile(join(src, file))).find(found => found)
      if (parsed === undefined) throw new Error(`${file} is not part of the project`)
      return parsed.imports.map(specifier => {
        const name = "text" in specifier ? String(specifier.text) : ""
        return name.startsWith(".") ? join(dirname(file), name) : name
      })
    }
    return new Map(files.map(file => [file, importsOf(file)]))
  } finally {
    api.close()
  }
})()

/** All that a file imports, directly or not, each with the file by which it came in on a shortest way. */
const closureOf = (start: string): ReadonlyMap<string, string> => {
  const importers = new Map<string, string>()
  const visit = (file: string) => {
    for (const target of imports.get(file) ?? []) if (!importers.has(target)) importers.set(target, file)
  }
  visit(start)
  for (const file of importers.keys()) visit(file)
  return importers
}

/** The chains of imports by which files reach what is forbidden to them. */
const violations = (starts: ReadonlyArray<string>, isForbidden: (target: string) => boolean): ReadonlyArray<string> => {
  const chains = starts.flatMap(start => {
    if (!imports.has(start)) throw new Error(`There is no ${start}`)
    const importers = closureOf(start)
    const chainTo = (target: string): string => {
      const importer = importers.get(target)!
      return `${importer === start ? start : chainTo(importer)} → ${target}`
    }
    // What a forbidden file imports in its turn would only repeat it.
    return [...importers].flatMap(([target, importer]) =>
      isForbidden(target) && (importer === start || !isForbidden(importer)) ? [chainTo(target)] : []
    )
  })
  // Of the chains that share their last import the shortest says enough.
  const shortest = new Map<string, string>()
  for (const chain of chains.sort((a, b) => a.length - b.length)) {
    const last = chain.split(" → ").slice(-2).join(" → ")
    if (!shortest.has(last)) shortest.set(last, chain)
  }
  return [...shortest.values()]
}

/** By node, the nodes that it points to, and an import that makes it so. */
type Edges = ReadonlyMap<string, ReadonlyMap<string, string>>

/** The edges that the imports between files make between nodes; `nodesOf` says which. */
const edgesOf = (nodesOf: (from: string, to: string) => readonly [from: string, to: string]): Edges => {
  const edges = new Map<string, Map<string, string>>()
  for (const [file, targets] of imports) {
    for (const target of targets) {
      if (!imports.has(target)) continue
      const [from, to] = nodesOf(file, target)
      const known = edges.get(from) ?? new Map<string, string>()
      edges.set(from, known.set(to, known.get(to) ?? `${file} → ${target}`))
    }
  }
  return edges
}

/** A shortest circle through each node that is part of one, each circle once, as the imports that form it. */
const circlesIn = (edges: Edges): ReadonlyArray<string> => {
  const circles = new Map<string, string>()
  for (const start of edges.keys()) {
    const previous = new Map<string, string>()
    const visit = (node: string) => {
      for (const next of edges.get(node)?.keys() ?? []) if (!previous.has(next)) previous.set(next, node)
    }
    visit(start)
    for (const node of previous.keys()) visit(node)
    if (!previous.has(start)) continue
    const nodes: Array<string> = []
    const steps: Array<string> = []
    for (let node = start; nodes.length === 0 || node !== start; node = nodes[0]!) {
      const before = previous.get(node)!
      steps.unshift(edges.get(before)!.get(node)!)
      nodes.unshift(before)
    }
    circles.set([...nodes].sort().join(), steps.join(", "))
  }
  return [...circles.values()]
}

/**
 * The entries of one folder that two files lie in, or are: `Kv/Api.ts` and `Http/ApiError.ts` lie in `Kv` and `Http`.
 */
const siblings = (from: string, to: string): readonly [string, string] => {
  const [a, b] = [from.split("/"), to.split("/")]
  const shared = a.findIndex((part, index) => part !== b[index])
  return [a.slice(0, shared + 1).join("/"), b.slice(0, shared + 1).join("/")]
}

const isIn =
  (...folders: ReadonlyArray<string>) =>
  (file: string): boolean =>
    folders.some(folder => file.startsWith(`${folder}/`))

it("each module of src begins with a sentence on what it is for", () => {
  const begins = (file: string) => /^(?:#!.*\n)?(?:\/\*\*|\/\/)/.test(readFileSync(join(src, file), "utf8"))
  expect(files.filter(file => !begins(file))).toStrictEqual([])
})

describe("imports within src", () => {
  it("form no circle of files", () => {
    expect(circlesIn(edgesOf((from, to) => [from, to]))).toStrictEqual([])
  })

  it("form no circle of folders, at any level", () => {
    expect(circlesIn(edgesOf(siblings))).toStrictEqual([])
  })

  /** What a client needs to know of the service. */
  const contracts = ["app/Api.ts", "Gateway/Protocol.ts", ...files.filter(file => file.endsWith("/Api.ts"))]

  it("of contracts are free of Node, of services and of configuration", () => {
    const isAllowed = (target: string): boolean =>
      target === "effect" || target.startsWith("@effect/platform/") || imports.has(target)
    expect(violations(contracts, target => !isAllowed(target))).toStrictEqual([])
    const serverCode = /\b(?:Buffer|process|Config|Context(?!\.Tag\b)|Layer)\.[a-zA-Z]|\bsetImmediate\(/
    const isOfServer = (file: string) => imports.has(file) && serverCode.test(readFileSync(join(src, file), "utf8"))
    expect(violations(contracts, isOfServer)).toStrictEqual([])
  })

  it("of transports lead to no domain", () => {
    const isDomain = isIn("Gateway", "Http/Auth", "Http/OpenApi", "Kv", "Operations", "Storage", "Upstream")
    const transports = files.filter(file => isIn("Http")(file) && !isIn("Http/Auth", "Http/OpenApi")(file))
    expect(violations(transports, isDomain)).toStrictEqual([])
  })

  /** What can be imported from the package, by the name that comes after `causewayd`. */
  const faces = {
    "": "exports/index.ts",
    "/contract": "exports/contract.ts",
    "/client": "exports/client.ts",
    "/client/effect": "exports/clientEffect.ts",
    "/store": "exports/store.ts",
    "/postgres": "exports/postgres.ts",
    "/testing": "exports/testing.ts",
    "/gateway": "exports/gateway.ts",
    "/upstream": "exports/upstream.ts"
  }

  /** The files that put the service together. */
  const composition = files.filter(file => isIn("CommandLine", "app", "exports")(file) || file === "main.ts")

  it("of domains do not lead to the composition of the service", () => {
    const domains = files.filter(file => !composition.includes(file) && !isIn("Client/Effect")(file))
    const isOfService = (target: string) => composition.includes(target) && !contracts.includes(target)
    expect(violations(domains, isOfService)).toStrictEqual([])
  })

  const isBackend = (file: string) =>
    /^(?:Storage\/(?:Backends|Memory|Postgres|Sqlite)|Gateway\/SessionEvents\/Memory)\b/.test(file)

  it("of storage backends occur only in the composition of the service", () => {
    const others = files.filter(file => !composition.includes(file) && !isIn("Storage", "Simulator")(file))
    expect(violations(others, isBackend)).toStrictEqual([])
  })

  const isPlainClient = (file: string) => isIn("Client")(file) && !isIn("Client/Effect")(file)

  it("of the plain client stay within it, so that it needs nothing but what browsers have", () => {
    expect(violations(files.filter(isPlainClient), target => !isPlainClient(target))).toStrictEqual([])
  })

  it("of the console lead to the plain client and to what pages are made of, and nothing else leads to the console", () => {
    const libraries =
      /^(?:preact(?:\/(?:compat|hooks))?|@preact\/signals|@tanstack\/virtual-core|diff|swagger-ui-dist(?:\/.*)?|uplot)$/
    // The data that the service passes to its pages is one contract for both, and hidden characters are the same on all
    // screens.
    // So is the reader of JSON. The functions of it that use `effect` are not part of the pages.
    const shared = [
      "base/HiddenCharacters.ts",
      "Operations/Pages/Paths.ts",
      "Operations/Activity/Model.ts",
      "Gateway/Protocol/Namespaces.ts",
      "base/ErrorMessage.ts",
      "effect"
    ]
    const isAllowed = (target: string) =>
      libraries.test(target) || isPlainClient(target) || isIn("Console", "base/Json")(target) || shared.includes(target)
    expect(violations(files.filter(isIn("Console")), target => !isAllowed(target))).toStrictEqual([])
    expect(files.filter(file => isIn("Console")(file) && imports.get(file)!.includes("effect"))).toStrictEqual([])
    const others = files.filter(file => !isIn("Console")(file))
    expect(violations(others, isIn("Console"))).toStrictEqual([])
  })

  it("of the chat page lead to what it is made of, and nothing else leads to it", () => {
    const libraries = /^(?:@ai-sdk\/react|ai|react|react-dom\/client)$/
    const isAllowed = (target: string) => libraries.test(target) || isIn("ChatPage")(target)
    expect(violations(files.filter(isIn("ChatPage")), target => !isAllowed(target))).toStrictEqual([])
    expect(
      violations(
        files.filter(file => !isIn("ChatPage")(file)),
        isIn("ChatPage")
      )
    ).toStrictEqual([])
  })

  it("of the client for Effect lead to the plain one, to contracts and to effect", () => {
    const isAllowed = (target: string) => target === "effect" || isIn("Client")(target) || contracts.includes(target)
    expect(violations(files.filter(isIn("Client/Effect")), target => !isAllowed(target))).toStrictEqual([])
  })

  it("are possible from the package by these names alone", () => {
    const { exports: exported } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"))
    const { "./package.json": _, ...names } = exported
    const entry = (file: string) => ({ types: `./dist/${file}.d.ts`, default: `./dist/${file}.js` })
    expect(names).toStrictEqual(
      Object.fromEntries(Object.entries(faces).map(([name, file]) => [`.${name}`, entry(file.replace(".ts", ""))]))
    )
  })

  const gateway = (file: string) =>
    isIn("Gateway")(file) && !contracts.includes(file) && !isIn("Gateway/Protocol")(file) && !ports.has(file)

  /** What the layer needs to know of the gateway: its ports, and the documentation of its contracts. */
  const ports = new Set([
    "Gateway/Clients/Access.ts",
    "Gateway/AiSdk/Description.ts",
    "Gateway/AiSdk/Endpoints.ts",
    "Gateway/AgUi/Description.ts",
    "Gateway/AgUi/Endpoints.ts",
    "Gateway/AgUi/Input.ts",
    "Gateway/HttpSessions/Description.ts",
    "Gateway/HttpSessions/Endpoints.ts",
    "Gateway/Streams/Description.ts",
    "Gateway/SessionEvents.ts",
    "Gateway/SessionNodes.ts",
    "Gateway/Socket/Endpoints.ts"
  ])

  const clientsOfUpstreams = (file: string) => /^Upstream\/(?:\w+Client|UpstreamClients)\.ts$/.test(file)

  /** What no file may come to that is imported for one of the faces. */
  const forbidden: Readonly<Record<keyof typeof faces, (target: string) => boolean>> = {
    "": file => isBackend(file) || gateway(file) || clientsOfUpstreams(file) || isIn("Simulator", "base/Process")(file),
    "/contract": target => !imports.has(target) && target !== "effect" && !target.startsWith("@effect/platform/"),
    "/client": target => !isPlainClient(target),
    "/client/effect": target => target !== "effect" && !isIn("Client")(target) && !contracts.includes(target),
    "/store": file => isIn("Http", "Operations/Health", "Simulator", "Upstream")(file) || /^(?:ws|jose|pg)$/.test(file),
    "/gateway": file => isBackend(file) || isIn("Http/Server", "Http/Edge", "Http/Platform", "Simulator")(file),
    "/postgres": file =>
      (gateway(file) && !isIn("Gateway/SessionEvents")(file)) ||
      isIn("Http", "Upstream", "Simulator", "Storage/Sqlite/Kv", "Storage/Sqlite/SessionEvents")(file) ||
      ["Storage/Sqlite.ts", "Storage/Memory.ts"].includes(file),
    "/testing": isIn("Http/Auth", "Http/Edge", "Http/Platform", "Http/Server", "Kv/ChangeFeed", "Storage/Sqlite"),
    "/upstream": isIn("Gateway", "Http", "Kv", "Simulator", "Storage")
  }

  it.each(Object.entries(faces))("of causeway%s lead to nothing that it does not need", (name, file) => {
    expect(violations([file], forbidden[name as keyof typeof faces])).toStrictEqual([])
  })
})
