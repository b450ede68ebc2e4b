/** A disk that is soon full: a file system in memory, which takes root and the right to mount. */
import { execFileSync } from "node:child_process"
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmdirSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import * as Databases from "./Databases.ts"
import { owner } from "./Server.ts"

export interface Disk {
  readonly directory: string
  /** Changes its size in MiB. */
  readonly resize: (size: number) => void
}

const mount = (directory: string, options: string): void => {
  execFileSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", directory], { stdio: "ignore" })
}

const unmount = (directory: string): void => {
  // The server may just be ending.
  execFileSync("umount", ["-l", directory], { stdio: "ignore" })
  rmdirSync(directory)
}

const makeDirectory = (): string => {
  const directory = mkdtempSync(join(tmpdir(), "causeway-disk-"))
  chmodSync(directory, 0o755)
  return directory
}

/** Why tests that need it are skipped, if they are. */
export const reasonToSkip: string | undefined = (() => {
  const directory = makeDirectory()
  try {
    mount(directory, "size=1m")
    unmount(directory)
    return undefined
  } catch {
    rmdirSync(directory)
    return "skipped: no file system can be mounted here (run it as root)"
  }
})()

/** A disk of a size in MiB, until the scope closes. */
export const make = (size: number): Effect.Effect<Disk, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const directory = makeDirectory()
      mount(directory, `size=${size}m,mode=755`)
      return { directory, resize: size => mount(directory, `remount,size=${size}m`) }
    }),
    ({ directory }) => Effect.sync(() => unmount(directory))
  )

/** The address of a new database whose tables are on the disk, and the write-ahead log is not, until the scope closes. */
export const createDatabase = ({ directory }: Disk): Effect.Effect<string, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const location = join(directory, "space")
      mkdirSync(location)
      if (owner !== undefined) chownSync(location, owner.uid, owner.gid)
      const url = await Databases.createDatabase()
      const name = new URL(url).pathname.slice(1)
      const admin = new URL("/postgres", url).href
      await Databases.execute(
        admin,
        `CREATE TABLESPACE ${name} LOCATION '${location}'`,
        `ALTER DATABASE ${name} SET TABLESPACE ${name}`
      )
      return { admin, name, url }
    }),
    ({ admin, name }) =>
      Effect.promise(() => Databases.execute(admin, `DROP DATABASE ${name} WITH (FORCE)`, `DROP TABLESPACE ${name}`))
  ).pipe(Effect.map(({ url }) => url))
