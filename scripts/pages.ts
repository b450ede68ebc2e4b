/**
 * Builds the web pages of the service into `dist`: `npm run build:pages`. With `--if-changed` it builds nothing where
 * they are newer than their sources; a directory takes them in the place of `dist`. `BUILT_PAGES` names a directory
 * that has them already, from which they are copied: tests that build several packages build the pages once.
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
import { brotliCompress, constants, gzip } from "node:zlib"

const root = fileURLToPath(new URL("..", import.meta.url))
const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { "if-changed": { type: "boolean", default: false } }
})
const out = resolve(positionals[0] ?? join(root, "dist"))

/** The pages, by the directory in `dist` that each has, and where their sources are. */
const pages = { console: "src/Console", docs: "src/Console/Reference" }

/** What pages are built from. */
const sources = ["src/Console/**", "src/Client/**", "scripts/pages.ts", "package-lock.json"]

/** When any of the sources was changed last. */
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

/** The names of files with licenses, also of what a package has bundled itself. */
const isLicense = (name: string): boolean => /^(?:licen[cs]e|notice)(?:\.|$)/i.test(name)

/** The licenses of what is bundled, which its authors want to be kept. */
const licensesOf = (files: Iterable<string>): string => {
  // Modules that the bundler has made of others have the names of those after a null character.
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
const gzipped = promisify(gzip)

/** From so many bytes on, the best quality of Brotli takes seconds and saves little. */
const largeBytes = 500_000

/** Compresses each file beside itself, so that the service need not. */
const compress = async (directory: string): Promise<void> => {
  await Promise.all(
    readdirSync(directory).map(async name => {
      const body = readFileSync(join(directory, name))
      const quality = body.length < largeBytes ? constants.BROTLI_MAX_QUALITY : 9
      const params = { [constants.BROTLI_PARAM_QUALITY]: quality }
      writeFileSync(join(directory, `${name}.br`), await brotli(body, { params }))
      writeFileSync(join(directory, `${name}.gz`), await gzipped(body, { level: 9 }))
    })
  )
}

const buildPage = async (name: string, source: string): Promise<void> => {
  // It takes half a second to load, which a build that has nothing to do does without.
  const { build } = await import("vite")
  // Built beside its place and moved there whole, so that two builds at once do not meet.
  mkdirSync(out, { recursive: true })
  const directory = mkdtempSync(join(out, `.${name}-`))
  const bundled = new Set<string>()
  await build({
    root: join(root, source),
    base: "./",
    configFile: false,
    logLevel: "warn",
    build: {
      outDir: directory,
      emptyOutDir: true,
      target: "es2022",
      // Data URLs of images would be allowed, those of scripts not: every file is a file.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      // Swagger UI is one file already.
      chunkSizeWarningLimit: 2000
    },
    plugins: [
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
  await Promise.all(Object.entries(pages).map(([name, source]) => buildPage(name, source)))
}
