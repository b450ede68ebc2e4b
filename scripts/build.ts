/** Builds the package: `npm run build`. */
import { execFileSync } from "node:child_process"
import { rmSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { build } from "esbuild"

const root = fileURLToPath(new URL("..", import.meta.url))
const migrations = "Storage/Sqlite/Database/Migrations"

rmSync(`${root}/dist`, { recursive: true, force: true })
execFileSync("tsc", ["-p", "scripts/tsconfig.build.json"], { cwd: root, stdio: "inherit" })

// The migrator is bundled, since @effect/sql-sqlite-node depends on an older better-sqlite3, which Node 26 cannot load.
await build({
  absWorkingDir: root,
  entryPoints: [`src/${migrations}.ts`],
  outfile: `dist/${migrations}.js`,
  bundle: true,
  platform: "node",
  format: "esm",
  target: "es2022",
  sourcemap: true,
  external: ["effect", "@effect/platform", "better-sqlite3"],
  logLevel: "warning"
})
