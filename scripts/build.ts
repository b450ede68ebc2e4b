/** Builds the package: `npm run build`. */
import { execFileSync } from "node:child_process"
import { rmSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { build } from "esbuild"
import { licensesOf } from "./licenses.ts"

const root = fileURLToPath(new URL("..", import.meta.url))
const migrations = "Storage/Sqlite/Database/Opening/Migrations"

rmSync(`${root}/dist`, { recursive: true, force: true })
execFileSync("tsc", ["-p", "scripts/tsconfig.build.json"], { cwd: root, stdio: "inherit" })

// The migrator is bundled because @effect/sql-sqlite-node depends on an older better-sqlite3, which Node 26 cannot
// load.
const migrator = await build({
  absWorkingDir: root,
  entryPoints: [`src/${migrations}.ts`],
  outfile: `dist/${migrations}.js`,
  bundle: true,
  platform: "node",
  format: "esm",
  target: "es2022",
  external: ["effect", "@effect/platform", "better-sqlite3"],
  metafile: true,
  logLevel: "warning"
})

// So is the library of the commands, because otherwise a host that runs no command would need its peers.
const library = await build({
  absWorkingDir: root,
  entryPoints: ["src/CommandLine/Library.ts"],
  outfile: "dist/CommandLine/Library.js",
  bundle: true,
  platform: "node",
  format: "esm",
  target: "es2022",
  external: ["effect", "@effect/platform"],
  // Replaces the readers of YAML, TOML and INI, which no command uses.
  alias: Object.fromEntries(["yaml", "toml", "ini"].map(name => [name, "./scripts/absent.ts"])),
  metafile: true,
  logLevel: "warning"
})
writeFileSync(`${root}/dist/THIRD-PARTY-LICENSES`, licensesOf(root, migrator.metafile, library.metafile))
