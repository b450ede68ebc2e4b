/**
 * Builds the web pages of the service into `dist` or another directory: `npm run build:pages`. With `--if-changed`,
 * pages that are newer than their sources are not built. If `BUILT_PAGES` is set, built pages are copied from that
 * directory, so that tests with several packages build the pages once.
 */
import {
  chmodSync,
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import { join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs, promisify } from "node:util"
import { brotliCompress, constants } from "node:zlib"
import { htmlOf, type PageName, pages } from "./pageSources.ts"

const root = fileURLToPath(new URL("..", import.meta.url))
const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { "if-changed": { type: "boolean", default: false } }
})
const out = resolve(positionals[0] ?? join(root, "dist"))

/** The sources of all pages. */
const sources = [
  "src/ChatPage/**",
  "src/Console/**",
  "src/Client/**",
  "src/base/Json/**",
  "src/Operations/**",
  "src/Gateway/Protocol/Namespaces.ts",
  "scripts/pages.ts",
  "scripts/pageSources.ts",
  "package-lock.json"
]

/** The time of the latest change of a source. */
const changedAt = (): number =>
  Math.max(
    ...sources.flatMap(pattern => globSync(pattern, { cwd: root })).map(file => statSync(join(root, file)).mtimeMs)
  )

const isBuilt = (): boolean => {
  const changed = changedAt()
  return Object.keys(pages).every(name => {
    const index = join(out, name, "index.html")
    return existsSync(index) && statSync(index).mtimeMs > changed
  })
}

/** The directory of the package that a bundled file belongs to. */
const packageOf = (file: string): string | undefined => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1]

/** Whether a file has a license or a notice. */
const isLicense = (name: string): boolean => /^(?:licen[cs]e|notice)(?:\.|$)/i.test(name)

/** The licenses of the bundled packages, which require that they are included. */
const licensesOf = (files: Iterable<string>): string => {
  // Modules that the bundler has generated have a null character before the name of their source.
  const bundled = [...files].map(file => file.replace(/^\0/, "").replace(/\?.*$/, ""))
  const packages = new Set(bundled.flatMap(file => packageOf(file) ?? []))
  return [...packages]
    .sort()
    .map(directory => {
      const { license, name, version } = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"))
      const own = readdirSync(directory)
        .filter(isLicense)
        .map(name => join(directory, name))
      const ofParts = bundled.map(file => `${file}.LICENSE.txt`).filter(file => packageOf(file) === directory)
      const texts = [...own, ...new Set(ofParts)].filter(existsSync).map(file => readFileSync(file, "utf8").trim())
      return `${name} ${version}\n\n${own.length === 0 ? `License: ${license}\n\n` : ""}${texts.join("\n\n")}\n`
    })
    .join(`\n${"-".repeat(80)}\n\n`)
}

const brotli = promisify(brotliCompress)

/** For larger files, the best quality of Brotli takes seconds and saves little. */
const largeBytes = 500_000

/** Replaces each file by a compressed one. The service makes its other forms, which would double the package. */
const compress = async (directory: string): Promise<void> => {
  await Promise.all(
    readdirSync(directory).map(async name => {
      const body = readFileSync(join(directory, name))
      const quality = body.length < largeBytes ? constants.BROTLI_MAX_QUALITY : 9
      const params = { [constants.BROTLI_PARAM_QUALITY]: quality }
      writeFileSync(join(directory, `${name}.br`), await brotli(body, { params }))
      rmSync(join(directory, name))
    })
  )
}

const buildPage = async (name: PageName): Promise<void> => {
  const index = join(root, pages[name], "index.html")
  // It takes half a second to load, and is not needed if nothing has changed.
  const { build } = await import("vite")
  // Built in a temporary directory and renamed, so that concurrent builds do not conflict.
  mkdirSync(out, { recursive: true })
  const directory = mkdtempSync(join(out, `.${name}-`))
  const bundled = new Set<string>()
  await build({
    root: join(root, pages[name]),
    base: "./",
    configFile: false,
    logLevel: "warn",
    build: {
      outDir: directory,
      emptyOutDir: true,
      target: "es2022",
      // The policy of the pages allows data URLs for images only, so nothing is inlined.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      // Swagger UI is a single large file.
      chunkSizeWarningLimit: 2000,
      rollupOptions: {
        input: index,
        // Directives of React for servers have no effect in a browser.
        onwarn: (warning, warn) => {
          if (warning.code !== "MODULE_LEVEL_DIRECTIVE") warn(warning)
        }
      }
    },
    plugins: [
      {
        name: "index",
        resolveId: id => (id === index ? id : undefined),
        load: id => (id === index ? htmlOf(name) : undefined)
      },
      {
        name: "licenses",
        generateBundle(_, bundle) {
          for (const chunk of Object.values(bundle)) {
            if (chunk.type !== "chunk") continue
            for (const [file, { renderedLength }] of Object.entries(chunk.modules)) {
              if (renderedLength > 0) bundled.add(file)
            }
          }
        }
      }
    ]
  })
  writeFileSync(join(directory, "THIRD-PARTY-LICENSES"), licensesOf(bundled))
  await compress(join(directory, "assets"))
  chmodSync(directory, 0o755)
  const page = join(out, name)
  rmSync(page, { recursive: true, force: true })
  renameSync(directory, page)
}

const built = process.env.BUILT_PAGES

if (built !== undefined) {
  for (const name of Object.keys(pages)) {
    rmSync(join(out, name), { recursive: true, force: true })
    cpSync(join(built, name), join(out, name), { recursive: true })
  }
} else if (!values["if-changed"] || !isBuilt()) {
  await Promise.all((Object.keys(pages) as Array<PageName>).map(buildPage))
}
