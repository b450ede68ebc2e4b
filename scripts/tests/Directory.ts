/**
 * The directory in which a test run has its files: databases, clusters, and the compiled service. It is in memory where
 * the machine has room for it, because most tests ask a disk for nothing but to be quick.
 */
import { existsSync, mkdirSync, readdirSync, rmSync, statfsSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

/** A file system in memory on Linux. Containers may have a small one. */
const memory = "/dev/shm"

/** About twice what the largest run has had there. */
const wanted = 6 * 1024 ** 3

const hasRoom = (): boolean => {
  if (!existsSync(memory)) return false
  const { bavail, bsize } = statfsSync(memory)
  return bavail * bsize >= wanted
}

const parent = process.env.TEST_DIRECTORY ?? (hasRoom() ? memory : tmpdir())

const prefix = "causeway-tests-"

export const path = join(parent, `${prefix}${process.pid}`)

const isRunning = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

const remove = (directory: string): void => rmSync(directory, { recursive: true, force: true, maxRetries: 10 })

/**
 * Creates it, as the temporary directory of this process and of all that it starts. What a failed test leaves for people
 * goes to the one of the machine.
 */
export const create = (): void => {
  for (const name of readdirSync(parent)) {
    // Left by a run that was killed.
    if (name.startsWith(prefix) && !isRunning(Number(name.slice(prefix.length)))) remove(join(parent, name))
  }
  mkdirSync(path, { mode: 0o755 })
  process.env.TEST_ARTIFACTS ??= tmpdir()
  process.env.TMPDIR = path
}

/** Removes it with all that tests have left there. */
export default (): (() => void) => () => remove(path)
