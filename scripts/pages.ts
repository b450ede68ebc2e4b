/**
 * Builds the web pages of the service into `dist`: `npm run build:pages`. With `--if-changed` it builds nothing where
 * they are newer than their sources; a directory takes them in the place of `dist`.
 */
import {
  chmodSync,
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

const page = join(out, "console")

/** What pages are built from. */
const sources = ["src/Console/**", "src/Client/**", "scripts/pages.ts", "package-lock.json"]

/** When any of the sources was changed last. */
const changedAt = (): number =>
  Math.max(
    ...sources.flatMap(pattern => globSync(pattern, { cwd: root })).map(file => statSync(join(root, file)).mtimeMs)
  )

const isBuilt = (): boolean => {
  const index = join(page, "index.html")
  return existsSync(index) && statSync(index).mtimeMs > changedAt()
}

/** The directory of the package that a bundled file belongs to. */
const packageOf = (file: string): string | undefined => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1]

/** The licenses of what is bundled, which its authors want to be kept. */
const licensesOf = (files: Iterable<string>): string => {
  const packages = new Set([...files].flatMap(file => packageOf(file) ?? []))
  return [...packages]
    .sort()
    .map(directory => {
      const { license, name, version } = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"))
      const file = readdirSync(directory).find(name => /^licen[cs]e(?:\.|$)/i.test(name))
      const text = file === undefined ? `License: ${license}` : readFileSync(join(directory, file), "utf8")
      return `${name} ${version}\n\n${text.trim()}\n`
    })
    .join(`\n${"-".repeat(80)}\n\n`)
}

const brotli = promisify(brotliCompress)
const gzipped = promisify(gzip)

/** Compresses each file as far as it goes, beside itself, so that the service need not. */
const compress = async (directory: string): Promise<void> => {
  await Promise.all(
    readdirSync(directory).map(async name => {
      const body = readFileSync(join(directory, name))
      const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY }
      writeFileSync(join(directory, `${name}.br`), await brotli(body, { params }))
      writeFileSync(join(directory, `${name}.gz`), await gzipped(body, { level: 9 }))
    })
  )
}

const buildConsole = async (): Promise<void> => {
  // It takes half a second to load, which a build that has nothing to do does without.
  const { build } = await import("vite")
  // Built beside its place and moved there whole, so that two builds at once do not meet.
  mkdirSync(out, { recursive: true })
  const directory = mkdtempSync(join(out, ".console-"))
  const bundled = new Set<string>()
  await build({
    root: join(root, "src/Console"),
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
      chunkSizeWarningLimit: 400
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
  rmSync(page, { recursive: true, force: true })
  renameSync(directory, page)
}

if (!values["if-changed"] || !isBuilt()) await buildConsole()
