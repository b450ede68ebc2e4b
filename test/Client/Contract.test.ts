/** The plain client compared with the contract, and its size in a browser. */
import { execFile } from "node:child_process"
import { readFileSync } from "node:fs"
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { gzipSync } from "node:zlib"
import type { HttpApiEndpoint } from "@effect/platform/HttpApiEndpoint"
import type { HttpApiGroup } from "@effect/platform/HttpApiGroup"
import { build } from "esbuild"
import { describe, expect, it } from "vitest"
import type * as Client from "../../src/Client/Client.ts"
import type * as EffectClient from "../../src/Client/Effect/Client.ts"
import type * as GatewayFrames from "../../src/Client/Sessions/Requests.ts"
import type * as Protocol from "../../src/Gateway/Protocol.ts"
import type { ApiError } from "../../src/Http/ApiError.ts"
import type { KvGroup } from "../../src/Kv/Api.ts"
import type { BatchOperation, SetPayload } from "../../src/Kv/Requests.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
const entryPoint = join(root, "src", "Client", "Client.ts")
const effectEntryPoint = join(root, "src", "Client", "Effect", "Client.ts")
const page = readFileSync(join(root, "docs/use/client.md"), "utf8")

/** Bundles a module for browsers. Returns the bytes after gzip, and the files that something is taken from. */
const bundle = async (contents: string) => {
  const { metafile, outputFiles } = await build({
    stdin: { contents, resolveDir: root, loader: "ts" },
    bundle: true,
    minify: true,
    format: "esm",
    platform: "browser",
    target: "es2022",
    metafile: true,
    write: false,
    absWorkingDir: root
  })
  const taken = Object.values(metafile.outputs).flatMap(({ inputs }) => Object.entries(inputs))
  return {
    size: gzipSync(outputFiles[0]!.contents).length,
    text: outputFiles[0]!.text,
    files: taken.flatMap(([file, { bytesInOutput }]) => (bytesInOutput > 0 ? [file] : []))
  }
}

/** `true` where two types are the same, modifiers of members included. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false

/** The names of the members of each request. */
type Members<Frame extends { readonly type: string }> = { [Each in Frame as Each["type"]]: keyof Each }

type OmitEach<A, Key extends PropertyKey> = A extends unknown ? Omit<A, Key> : never

/** A type with its members written out. */
type Flat<A> = A extends unknown ? { [Key in keyof A]: A[Key] } : never

type Endpoints =
  typeof KvGroup extends HttpApiGroup<string, infer Endpoint, infer _Error, infer _R, infer _TopLevel>
    ? Endpoint
    : never

/** What an endpoint answers. */
type Answer<Name extends string> = HttpApiEndpoint.SuccessWithName<Endpoints, Name>

describe("the plain client", () => {
  it("has the types of the contract", () => {
    const same: [
      Same<Flat<Client.Operation>, Flat<typeof BatchOperation.Type>>,
      Same<
        Flat<Omit<Client.SetOptions, "signal" | "ifVersion" | "idempotencyKey">>,
        Flat<Omit<typeof SetPayload.Type, "value" | "ifVersion">>
      >,
      Same<Client.Entry, Answer<"set">>,
      Same<Client.Entry, Exclude<Answer<"get">, void>>,
      Same<ReadonlyArray<Flat<Client.EntryKey & { readonly value?: unknown }>>, Answer<"list">["items"]>,
      Same<Client.NamespacePage["namespaces"], Answer<"namespaces">["namespaces"]>,
      Same<Client.TenantPage["tenants"], Answer<"tenants">["tenants"]>,
      Same<ReadonlyArray<Flat<Client.EntryKey & { readonly value?: unknown }> | null>, Answer<"read">["items"]>,
      Same<Client.RemoveResult, Answer<"removePrefix">>,
      Same<Client.DeleteResult, Answer<"delete">>,
      Same<ReadonlyArray<Client.OperationResult>, Answer<"batch">["results"]>,
      Same<Client.ChangePage, Answer<"changes">>
    ] = [true, true, true, true, true, true, true, true, true, true, true, true]
    expect(same).not.toContain(false)
  })

  it("has an error for each of the contract, and the client for Effect has the same", () => {
    const same: [
      Same<Exclude<ApiError["_tag"], Client.ClientError["_tag"]>, never>,
      Same<Client.ClientError["_tag"], EffectClient.ClientError["_tag"]>,
      Same<Client.SessionsError["_tag"], EffectClient.SessionsError["_tag"]>
    ] = [true, true, true]
    expect(same).not.toContain(false)
  })

  it("has the types of the gateway's protocol", () => {
    const same: [
      Same<Flat<Client.Session>, Flat<Protocol.Session>>,
      Same<Client.SessionEvent["type"], Protocol.EventType>,
      Same<Flat<Client.EventBody>, Flat<Protocol.EventBody>>,
      Same<Flat<Client.EventEnvelope>, Flat<Protocol.Envelope>>,
      Same<Client.ErrorCode, Protocol.ErrorCode>,
      Same<Flat<GatewayFrames.Answer>, Flat<Protocol.Answer>>,
      GatewayFrames.RequestFrame extends OmitEach<Protocol.RequestFrame, "id"> ? true : false,
      Same<Members<GatewayFrames.RequestFrame>, Members<OmitEach<Protocol.RequestFrame, "id">>>
    ] = [true, true, true, true, true, true, true, true]
    expect(same).not.toContain(false)
  })

  /** What is bundled, minified and compressed, and the most KiB that it may have. docs/use/client.md names the figures. */
  const bundles = [
    ["entries", "import { makeKeyValueClient } from ENTRY; globalThis.make = makeKeyValueClient", 4.5],
    ["entries and the log", "import { makeClient } from ENTRY; globalThis.make = makeClient", 8],
    ["sessions", "import { makeSessions } from ENTRY; globalThis.make = makeSessions", 12.5],
    ["all", "export * from ENTRY", 19]
  ] as const

  it.each(bundles)("costs a browser for %s what docs/use/client.md says", async (what, code, limit) => {
    const { files, size, text } = await bundle(code.replace("ENTRY", JSON.stringify(entryPoint)))
    const shown = (size / 1024).toFixed(1)
    console.log(`${what}: ${shown} KiB`)
    expect(size).toBeLessThan(limit * 1024)
    expect(size).toBeLessThan(25 * 1024)
    expect(page).toContain(`| ${what} | ${limit} KiB |`)
    expect(files.filter(file => !file.startsWith("src/Client/") && file !== "<stdin>")).toEqual([])
    if (what !== "entries") return
    expect(files.filter(file => /Session|Transports|Follow/.test(file))).toEqual([])
    // The subprotocol of WebSockets.
    expect(text).not.toContain("causeway.v1")
  })

  it("costs a browser in Effect what docs/use/client.md says", async () => {
    const { size } = await bundle(`export { make, makeSessions } from ${JSON.stringify(effectEntryPoint)}`)
    const limit = 125
    console.log(`in Effect: ${(size / 1024).toFixed(1)} KiB`)
    expect(size).toBeLessThan(limit * 1024)
    expect(page).toContain(`| all, for Effect | ${limit} KiB |`)
  })

  it("compiles for browsers, with declarations that need neither Node's types nor Effect's", async () => {
    const directory = await mkdtemp(join(tmpdir(), "causeway-client-"))
    try {
      const page = join(directory, "page.ts")
      await writeFile(
        page,
        `import { type ClientError, makeClient, makeSessions } from ${JSON.stringify(entryPoint)}
         const client = makeClient({ baseUrl: location.origin, token: "t", WebSocket, fetch })
         export const show = async (): Promise<void> => {
           for await (const event of client.follow({ namespace: "n" })) if (event.type === "entry") event.entry.key
         }
         export const explain = (error: ClientError): number | undefined =>
           error._tag === "PreconditionFailed" ? error.currentVersion : undefined
         export const talk = async (id: string): Promise<void> => {
           const sessions = makeSessions({ baseUrl: location.origin, token: () => "t" })
           for await (const update of sessions.subscribe(id)) {
             if (update.type === "event" && update.event.type === "text_delta") update.event.text
           }
         }`
      )
      const config = join(directory, "tsconfig.json")
      await writeFile(
        config,
        JSON.stringify({
          extends: join(root, "tsconfig.json"),
          compilerOptions: {
            types: [],
            rewriteRelativeImportExtensions: false,
            lib: ["ES2022", "DOM"],
            noEmit: false,
            declaration: true,
            emitDeclarationOnly: true,
            skipLibCheck: false,
            module: "ESNext",
            moduleResolution: "Bundler",
            rootDir: "/",
            outDir: join(directory, "out")
          },
          include: [page]
        })
      )
      const compiler = join(root, "node_modules", "typescript", "bin", "tsc")
      const failure: unknown = await promisify(execFile)(process.execPath, [compiler, "-p", config]).then(
        () => undefined,
        error => error.stdout
      )
      expect(failure).toBeUndefined()
      const declarations = join(directory, "out", root, "src", "Client")
      const names = (await readdir(declarations, { recursive: true })).filter(name => name.endsWith(".d.ts"))
      expect(names).toContain("Client.d.ts")
      for (const name of names) {
        const text = await readFile(join(declarations, name), "utf8")
        const imported = [...text.matchAll(/from "([^"]+)"/g)].map(([, target = ""]) => target)
        const outside = imported.filter(
          target => !target.startsWith(".") || join(dirname(name), target).startsWith("..")
        )
        expect({ name, outside }).toEqual({ name, outside: [] })
      }
    } finally {
      await rm(directory, { recursive: true, force: true })
    }
  })
})
