/** A host with a package: packed, unpacked together with only what npm installs with it, and used by its name. */
import { execFile } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { publint } from "publint"
import { formatMessage } from "publint/utils"
import { buildPages, builtPages } from "../Console/Service.ts"

export const root = fileURLToPath(new URL("../..", import.meta.url))
export const modules = join(root, "node_modules")

/** Runs a program to its end, and returns what it has printed. */
export const run = async (
  file: string,
  args: ReadonlyArray<string>,
  cwd: string,
  env: Readonly<Record<string, string>> = {}
): Promise<string> => {
  const options = { cwd, env: { ...process.env, ...env }, maxBuffer: 16 * 1024 * 1024 }
  const { stdout } = await promisify(execFile)(file, [...args], options)
  return stdout
}

/** What makes a build take the pages that all test files share. */
export const withBuiltPages = async (): Promise<Readonly<Record<string, string>>> => {
  await buildPages()
  return { BUILT_PAGES: fileURLToPath(builtPages()) }
}

export interface Manifest {
  readonly name: string
  readonly version: string
  readonly exports: Readonly<Record<string, unknown>>
  readonly dependencies?: Readonly<Record<string, string>>
  readonly optionalDependencies?: Readonly<Record<string, string>>
  readonly peerDependencies?: Readonly<Record<string, string>>
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>
}

type Dependent = Omit<Manifest, "name" | "version" | "exports">

const manifestOf = (directory: string): Manifest => JSON.parse(readFileSync(join(directory, "package.json"), "utf8"))

/** What a project under strict rules is compiled with; a module has the types of Node, and no others. */
const strict = {
  ...{ target: "ES2022", module: "NodeNext", moduleResolution: "NodeNext", types: ["node"] },
  ...{ strict: true, exactOptionalPropertyTypes: true }
}

/** Which peers npm installs: the oldest or the newest that the package admits. */
export type Peers = "lowest" | "newest"

/** What the oldest peers need themselves, of their own time: the newest of these need newer peers. */
const withLowest = [
  "@effect/cluster@0.60.0",
  "@effect/experimental@0.61.0",
  "@effect/platform-node-shared@0.61.0",
  "@effect/rpc@0.76.0",
  "@effect/sql@0.52.0",
  "@effect/workflow@0.19.0"
]

export class Host {
  readonly directory = mkdtempSync(join(tmpdir(), "causeway-host-"))
  /** Where the package is. */
  readonly installed: string
  /** The package as it is published. */
  tarball = ""

  constructor(name: string) {
    this.installed = join(this.directory, "node_modules", name)
    writeFileSync(join(this.directory, "package.json"), JSON.stringify({ name: "host", type: "module", private: true }))
  }

  /** Packs a directory and installs the package. */
  async install(directory: string): Promise<void> {
    const to = this.directory
    const pack = ["pack", "--json", "--silent", "--pack-destination", to]
    const packed = JSON.parse(await run("npm", pack, directory, await withBuiltPages()))
    this.tarball = join(to, packed[0].filename)
    mkdirSync(this.installed, { recursive: true })
    await run("tar", ["-xzf", this.tarball, "--strip-components=1", "-C", this.installed], to)
    this.link(this.manifest())
  }

  /** Packs a directory and has npm install the package, from the registry with peers of these versions. */
  async installWith(directory: string, versions: Peers): Promise<void> {
    await this.install(directory)
    const peers = Object.entries(this.manifest().peerDependencies ?? {})
    const wanted = peers.map(([name, range]) => `${name}@${versions === "lowest" ? range.replace(/^\^/, "") : range}`)
    rmSync(join(this.directory, "node_modules"), { recursive: true })
    const types = `@types/node@${manifestOf(join(modules, "@types/node")).version}`
    const packages = [this.tarball, types, ...wanted, ...(versions === "lowest" ? withLowest : [])]
    await run("npm", ["install", "--no-audit", "--no-fund", "--loglevel=error", ...packages], this.directory)
  }

  /** Links what npm installs with a package: nothing that we have for development alone. */
  link({ dependencies, optionalDependencies, peerDependencies, peerDependenciesMeta }: Dependent): void {
    const peers = Object.keys({ ...peerDependencies }).filter(name => peerDependenciesMeta?.[name]?.optional !== true)
    for (const name of [...Object.keys({ ...dependencies, ...optionalDependencies }), ...peers]) {
      const [from, to] = [join(modules, name), join(this.directory, "node_modules", name)]
      if (!existsSync(from) || existsSync(to)) continue
      mkdirSync(dirname(to), { recursive: true })
      symlinkSync(from, to)
      this.link(manifestOf(from))
    }
  }

  manifest(): Manifest {
    return manifestOf(this.installed)
  }

  /** What publint says of the package. */
  async faults(): Promise<ReadonlyArray<string | undefined>> {
    const { buffer } = Uint8Array.from(readFileSync(this.tarball))
    const { messages, pkg } = await publint({ pack: { tarball: buffer }, strict: true })
    return messages.map(message => formatMessage(message, pkg, { color: false }))
  }

  /** Fails where the types of the package are wrong for some way of importing it. */
  async checkTypes(): Promise<void> {
    await run(join(modules, ".bin", "attw"), [this.tarball, "--profile", "esm-only"], this.directory)
  }

  /** Runs the compiler over files of a folder, under strict rules and others; returns its errors. */
  compile(
    folder: string,
    files: ReadonlyArray<string>,
    options: Readonly<Record<string, unknown>> = {},
    compiler = "typescript"
  ): Promise<string> {
    writeFileSync(
      join(folder, "tsconfig.json"),
      JSON.stringify({ compilerOptions: { ...strict, ...options }, include: files })
    )
    return this.build(folder, compiler)
  }

  /** Runs the compiler over a project; returns its errors. */
  build(project: string, compiler = "typescript"): Promise<string> {
    const tsc = join(modules, compiler, "bin", "tsc")
    return run(process.execPath, [tsc, "-p", project], project).catch(({ stdout, message }) => stdout || message)
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true })
  }
}
