/**
 * Builds the package `causewayd-standalone`, in which Effect is bundled: `npm run build:standalone [directory]`. Its
 * `package.json` and its declarations are generated.
 */
import { execFileSync } from "node:child_process"
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { delimiter, join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { build } from "esbuild"
import { Api } from "../src/app/Api.ts"
import { text as asyncApi } from "../src/app/AsyncApi.ts"
import { text as openApi } from "../src/Http/OpenApi/Document.ts"
import { licensesOf } from "./licenses.ts"

const root = fileURLToPath(new URL("..", import.meta.url))
const out = resolve(process.argv[2] ?? join(root, "dist-standalone"))
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"))

/**
 * Packages that are installed with it: one has a native part, and the other loads native helpers if they are installed.
 */
const dependencies = Object.fromEntries(
  ["better-sqlite3", "ws"].map(name => [name, manifest.dependencies[name] as string])
)

rmSync(out, { recursive: true, force: true })
mkdirSync(join(out, "dist"), { recursive: true })

const { metafile } = await build({
  absWorkingDir: root,
  // The code that starts the threads looks for their files one folder above.
  entryPoints: {
    "causeway/index": "src/app/Standalone.ts",
    WriterThread: "src/Storage/Sqlite/WriterThread.ts",
    CopyThread: "src/Storage/Sqlite/CopyThread.ts"
  },
  outdir: join(out, "dist"),
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node22",
  external: Object.keys(dependencies),
  metafile: true,
  logLevel: "warning"
})

// The plain client has no dependency. Its declarations are those of the modules that it is made of.
await build({
  absWorkingDir: root,
  entryPoints: ["src/exports/client.ts"],
  outfile: join(out, "dist/client/index.js"),
  bundle: true,
  platform: "neutral",
  format: "esm",
  target: "es2022",
  logLevel: "warning"
})
execFileSync("tsc", ["-p", "scripts/tsconfig.client.json", "--outDir", join(out, "dist/client")], {
  cwd: root,
  stdio: "inherit",
  env: { ...process.env, PATH: `${join(root, "node_modules/.bin")}${delimiter}${process.env.PATH}` }
})

writeFileSync(join(out, "openapi.json"), openApi(Api))
writeFileSync(join(out, "asyncapi.json"), asyncApi())

// A module of types is its own declaration.
const types = readFileSync(join(root, "src/app/Standalone/Interface.ts"), "utf8")
writeFileSync(join(out, "dist/causeway/index.d.ts"), `${types}\nexport declare const createCauseway: CreateCauseway\n`)

const { description, engines, license, publishConfig, type, version } = manifest
writeFileSync(
  join(out, "package.json"),
  `${JSON.stringify(
    {
      name: "causewayd-standalone",
      version,
      description,
      license,
      type,
      publishConfig,
      engines,
      sideEffects: false,
      exports: {
        ".": { types: "./dist/causeway/index.d.ts", default: "./dist/causeway/index.js" },
        "./client": { types: "./dist/client/exports/client.d.ts", default: "./dist/client/index.js" },
        "./openapi.json": "./openapi.json",
        "./asyncapi.json": "./asyncapi.json",
        "./package.json": "./package.json"
      },
      files: ["dist", "openapi.json", "asyncapi.json", "THIRD-PARTY-LICENSES"],
      dependencies,
      peerDependencies: { "@types/node": ">=22" },
      peerDependenciesMeta: { "@types/node": { optional: true } }
    },
    null,
    2
  )}\n`
)

writeFileSync(join(out, "THIRD-PARTY-LICENSES"), licensesOf(root, metafile))

execFileSync(process.execPath, ["--import", "tsx", "scripts/pages.ts", join(out, "dist")], {
  cwd: root,
  stdio: "inherit"
})

cpSync(join(root, "LICENSE"), join(out, "LICENSE"))
const page = join(root, "docs/embed/standalone.md")
if (existsSync(page)) cpSync(page, join(out, "README.md"))
