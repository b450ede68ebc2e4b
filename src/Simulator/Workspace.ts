/** The files of a simulated instance. */
import { createHash } from "node:crypto"
import type { Limits } from "./Options.ts"

/** An immutable snapshot of one file. */
export interface Iteration {
  /** 1 for the first of a path, then incremented with each change; never used twice. */
  readonly iteration: number
  /** Epoch milliseconds. */
  readonly timestamp: number
  /** Bytes. */
  readonly size: number
  readonly hash: string
}

interface Version extends Iteration {
  readonly bytes: Buffer
}

export type ListEntry =
  | ({ readonly path: string; readonly type: "file" } & Iteration)
  | { readonly path: string; readonly type: "directory" }

/** A file's content, in base64 if the bytes are not UTF-8. */
export interface FileContent extends Iteration {
  readonly path: string
  readonly content: string
  readonly encoding: "utf-8" | "base64"
}

interface File {
  readonly versions: Array<Version>
  /** False if it was deleted. A deleted file keeps its iterations. */
  present: boolean
}

const contentOf = (path: string, { bytes, ...iteration }: Version): FileContent => {
  const text = bytes.toString("utf8")
  const isText = Buffer.from(text).equals(bytes)
  return {
    path,
    content: isText ? text : bytes.toString("base64"),
    encoding: isText ? "utf-8" : "base64",
    ...iteration
  }
}

const iterationOf = ({ bytes: _, ...iteration }: Version): Iteration => iteration

/** The versioned files of one instance, in memory and within limits. */
export class Workspace {
  private readonly files = new Map<string, File>()
  private bytes = 0

  constructor(private readonly limits: Pick<Limits, "files" | "workspaceBytes" | "iterations">) {}

  /** Writes a file; `undefined` if a limit is reached. */
  write(path: string, content: string | Uint8Array, now: number): (Iteration & { created: boolean }) | undefined {
    const bytes = Buffer.from(content)
    const file = this.files.get(path) ?? { versions: [], present: false }
    if (!this.files.has(path) && this.files.size >= this.limits.files) return undefined
    const room = this.limits.workspaceBytes - this.bytes + file.versions.reduce((sum, version) => sum + version.size, 0)
    if (bytes.length > room) return undefined
    const created = !file.present
    const version: Version = {
      iteration: (file.versions.at(-1)?.iteration ?? 0) + 1,
      timestamp: now,
      size: bytes.length,
      hash: `sha256:${createHash("sha256").update(bytes).digest("hex")}`,
      bytes
    }
    file.versions.push(version)
    file.present = true
    this.files.set(path, file)
    this.bytes += bytes.length
    while (file.versions.length > this.limits.iterations || this.bytes > this.limits.workspaceBytes) {
      this.bytes -= file.versions.shift()!.size
    }
    return { ...iterationOf(version), created }
  }

  /** Deletes a file, but not its history; `false` if there is none. */
  delete(path: string): boolean {
    const file = this.files.get(path)
    const wasPresent = file?.present === true
    if (file !== undefined) file.present = false
    return wasPresent
  }

  /** Renames a file, as the next iteration of the new path; `undefined` if there is none or a limit is reached. */
  rename(from: string, to: string, now: number): Iteration | undefined {
    const file = this.files.get(from)
    if (file === undefined || !file.present || from === to) return undefined
    const iteration = this.write(to, file.versions.at(-1)!.bytes, now)
    if (iteration !== undefined) file.present = false
    return iteration
  }

  /** Files and directories below a directory (`""` for the root), in order, to a depth of 1 or more. */
  list(directory: string, depth: number): ReadonlyArray<ListEntry> | undefined {
    const prefix = directory === "" ? "" : `${directory}/`
    const entries = new Map<string, ListEntry>()
    for (const [path, { versions, present }] of this.files) {
      if (!present || !path.startsWith(prefix)) continue
      const segments = path.slice(prefix.length).split("/")
      for (let level = 1; level < segments.length && level <= depth; level++) {
        const parent = prefix + segments.slice(0, level).join("/")
        entries.set(parent, { path: parent, type: "directory" })
      }
      if (segments.length <= depth) entries.set(path, { path, type: "file", ...iterationOf(versions.at(-1)!) })
    }
    if (entries.size === 0 && directory !== "") return undefined
    return [...entries.values()].sort((a, b) => (a.path < b.path ? -1 : 1))
  }

  read(path: string): FileContent | undefined {
    const file = this.files.get(path)
    return file?.present === true ? contentOf(path, file.versions.at(-1)!) : undefined
  }

  /** The kept iterations of a path, ascending, even if it is deleted. */
  history(path: string): ReadonlyArray<Iteration> | undefined {
    return this.files.get(path)?.versions.map(iterationOf)
  }

  at(path: string, iteration: number): FileContent | undefined {
    const version = this.files.get(path)?.versions.find(version => version.iteration === iteration)
    return version && contentOf(path, version)
  }
}
