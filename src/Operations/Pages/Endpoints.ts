/** Answers with the web pages and their headers. */

import { createHash } from "node:crypto"
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { promisify } from "node:util"
import { brotliDecompress, gzip } from "node:zlib"
import { Config, Context, Effect, Option } from "effect"
import * as Setting from "../../base/Setting.ts"
import { NotFound } from "../../Http/ApiError.ts"
import { varyOf, weightsIn } from "../../Http/Compression.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import * as Endpoints from "../../Http/Endpoints.ts"
import { empty, type Reply } from "../../Http/Reply.ts"
import { MetricsRoutes, type MetricsRoutesShape } from "../Metrics/Endpoints.ts"
import { ChatPageGroup, ConsoleGroup, ReferenceGroup } from "./Api.ts"
import { describe, type Routes } from "./Paths.ts"

/** The content codings, in order of preference. */
const codings = ["br", "gzip"] as const

type Coding = (typeof codings)[number]

/** A file in one of its forms. */
export interface StaticFile {
  readonly body: Uint8Array
  readonly contentType: string
  /** A strong entity tag, which differs for each form. */
  readonly etag: string
  readonly coding: Coding | undefined
}

const contentTypes: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  json: "application/json",
  svg: "image/svg+xml",
  txt: "text/plain; charset=utf-8",
  woff2: "font/woff2"
}

/** The names of built files. Names that leave the directory or are too long do not match. */
const fileName = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\.([a-z0-9]{1,9})$/

const etagOf = (body: Uint8Array): string => `"${createHash("sha256").update(body).digest("base64url").slice(0, 22)}"`

const read = (url: URL): Promise<Uint8Array | undefined> =>
  readFile(url).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined
    throw error
  })

const [compressed, decompressed] = [promisify(gzip), promisify(brotliDecompress)]

/** A file of the build in one of its forms. The build compresses all but the pages themselves, by Brotli. */
const bodyOf = async (file: URL, coding: Coding | undefined): Promise<Uint8Array | undefined> => {
  const brotli = await read(new URL(`${file}.br`))
  if (coding === "br") return brotli
  if (brotli === undefined) return coding === undefined ? read(file) : undefined
  const plain = await decompressed(brotli)
  return coding === undefined ? plain : compressed(plain, { level: 9 })
}

/** A file with another body. */
export const changed = (file: StaticFile, body: Uint8Array): StaticFile => ({ ...file, body, etag: etagOf(body) })

/** The files of a directory. */
export interface StaticFiles {
  /** A file in the best form by the weights of the codings; `None` if no file has the name. */
  readonly file: (name: string, weights: ReadonlyMap<string, number>) => Effect.Effect<Option.Option<StaticFile>>
}

/** The files of a built directory. Each form of a file is made when it is first requested, and kept. */
export const make = (directory: URL): StaticFiles => {
  // Unknown names are not kept, so that requests cannot make the cache grow.
  const known = new Map<string, Promise<StaticFile | undefined>>()

  const load = (name: string, coding: Coding | undefined, contentType: string): Promise<StaticFile | undefined> => {
    const key = `${name} ${coding}`
    const found = known.get(key)
    if (found !== undefined) return found
    const loading = bodyOf(new URL(name, directory), coding).then(
      body => body && { body, contentType, coding, etag: etagOf(body) }
    )
    known.set(key, loading)
    const forget = () => void known.delete(key)
    loading.then(file => file ?? forget(), forget)
    return loading
  }

  return {
    file: (name, weights) =>
      Effect.promise(async () => {
        const contentType = contentTypes[fileName.exec(name)?.[1] ?? ""]
        if (contentType === undefined) return Option.none()
        for (const coding of codings) {
          const file = weights.get(coding) ? await load(name, coding, contentType) : undefined
          if (file !== undefined) return Option.some(file)
        }
        return Option.fromNullable(await load(name, undefined, contentType))
      })
  }
}

/** Which pages are served. */
export interface PagesShape {
  readonly console: boolean
  readonly reference: boolean
  /** Whether the page to talk with an agent is served; not by default, as it has no credential. */
  readonly chat?: boolean | undefined
  /** The directory of the built pages, for hosts that bundle this package; `dist` of the package by default. */
  readonly directory?: URL | undefined
}

/** The pages that are served: by default all whose groups are in the application's API. */
export class Pages extends Context.Reference<Pages>()("causeway/Pages", {
  defaultValue: (): PagesShape => ({ console: true, reference: true })
}) {}

/** Reads the configuration variables of the pages. */
export const config: Config.Config<PagesShape> = Config.all({
  console: Setting.boolean("CONSOLE_ENABLED", {
    description: "Whether the console is served at /console",
    default: true
  }),
  reference: Setting.boolean("REFERENCE_ENABLED", {
    description: "Whether the reference of the API is served at /docs",
    default: true
  })
})

/** The directory of the build: `dist` of the package that contains this code, bundled or not. */
const ownDirectory = (): URL => {
  let directory = new URL("./", import.meta.url)
  while (!existsSync(new URL("package.json", directory)) && directory.pathname !== "/") {
    directory = new URL("../", directory)
  }
  return new URL("dist/", directory)
}

/** A page loads only its own files, connects only to its own origin, and cannot be framed. */
const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'"
].join("; ")

const securityHeaders = {
  "content-security-policy": contentSecurityPolicy,
  "cross-origin-opener-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff"
}

/** File names contain a hash of their content. */
const immutable = "public, max-age=31536000, immutable"

const notFound = Effect.fail(new NotFound({ error: "Not found" }))

const notBuilt = (page: string) =>
  Effect.fail(new NotFound({ error: `The files of this page are not there: npm run build:pages makes dist/${page}` }))

const matches = (header: unknown, etag: string): boolean =>
  typeof header === "string" && (header.trim() === "*" || header.split(",").some(tag => tag.trim() === etag))

const reply = (
  { headers: requested }: Incoming,
  { body, coding, contentType, etag }: StaticFile,
  cacheControl: string
): Reply => {
  const headers = { ...securityHeaders, etag, "cache-control": cacheControl, vary: varyOf(requested) }
  if (matches(requested["if-none-match"], etag)) return empty(304, headers)
  return {
    status: 200,
    headers: { ...headers, "content-type": contentType, ...(coding && { "content-encoding": coding }) },
    body
  }
}

/** The placeholder for the routes in a page. */
const placeholder = "__ROUTES__"

const escaped = (json: string): string => json.replace(/[&"<>]/g, character => `&#${character.charCodeAt(0)};`)

/** Inserts the routes into a page. The page is small and not compressed. */
const withRoutes = (page: StaticFile, routes: string): StaticFile => {
  const body = new TextDecoder().decode(page.body).replace(placeholder, () => escaped(routes))
  return changed(page, new TextEncoder().encode(body))
}

/** Removes routes that are disabled, so that no page uses them. */
const served = (routes: Routes, pages: PagesShape, { json }: MetricsRoutesShape): Routes => ({
  ...routes,
  metricsJson: json ? routes.metricsJson : undefined,
  chatPage: pages.chat ? routes.chatPage : undefined,
  console: pages.console ? routes.console : undefined,
  reference: pages.reference ? routes.reference : undefined
})

/** Serves a page and its files at `/<name>/`, possibly under a prefix of the host. */
const serve = (name: string, address: string, routes: Routes, pages: PagesShape, metrics: MetricsRoutesShape) => {
  const { directory = ownDirectory() } = pages
  const files = make(new URL(`${name}/`, directory))
  const assets = make(new URL(`${name}/assets/`, directory))
  const described = describe(`${address}/`, served(routes, pages, metrics))
  return {
    // Relative, because a proxy may have removed a prefix.
    address: () => Effect.succeed(empty(308, { location: `${name}/`, "cache-control": "no-cache" })),
    page: ({ incoming }: { readonly incoming: Incoming }) =>
      Effect.flatMap(
        files.file("index.html", new Map()),
        Option.match({
          onNone: () => notBuilt(name),
          onSome: page => Effect.succeed(reply(incoming, withRoutes(page, described), "no-cache"))
        })
      ),
    asset: ({ incoming, path }: { readonly incoming: Incoming; readonly path: { readonly file: string } }) =>
      Effect.flatMap(
        assets.file(path.file, weightsIn(incoming.headers["accept-encoding"])),
        Option.match({
          onNone: () => notFound,
          onSome: file => Effect.succeed(reply(incoming, file, immutable))
        })
      )
  }
}

const hidden = { address: () => notFound, page: () => notFound, asset: () => notFound }

/** The handlers of the groups of pages, whose paths are in `routes`. Pages that are not served are not found. */
export const pageEndpoints = (routes: Routes) => {
  const served = (name: string, isServed: (pages: PagesShape) => boolean | undefined, address: string) =>
    Effect.map(Effect.all([Pages, MetricsRoutes]), ([pages, metrics]) =>
      isServed(pages) ? serve(name, address, routes, pages, metrics) : hidden
    )
  const { chatPage = "/chat", console = "/console", reference = "/docs" } = routes
  return {
    chatPage: Endpoints.of(
      ChatPageGroup,
      served("chat", ({ chat }) => chat, chatPage)
    ),
    console: Endpoints.of(
      ConsoleGroup,
      served("console", pages => pages.console, console)
    ),
    reference: Endpoints.of(
      ReferenceGroup,
      served("docs", pages => pages.reference, reference)
    )
  }
}
