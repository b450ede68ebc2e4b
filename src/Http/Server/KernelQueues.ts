/**
 * The lengths of the kernel's send queues, as Linux shows them in /proc.
 *
 * The kernel asks for more only when a third of a queue of 4 MiB is free, which takes a slow client a minute. Until then
 * only the kernel knows that the client reads. Without /proc, such a client looks like one that does not read.
 */
import { readFile, readlink } from "node:fs/promises"
import type { Duplex } from "node:stream"

interface Descriptor {
  readonly _handle?: { readonly fd: number } | null
}

const known = new WeakMap<Duplex, string>()

/** The inode of a socket, by which the kernel's tables identify it. */
const inodeOf = async (socket: Duplex & Descriptor): Promise<string | undefined> => {
  const inode = known.get(socket)
  const fd = socket._handle?.fd ?? -1
  if (inode !== undefined || fd < 0) return inode
  const target = await readlink(`/proc/self/fd/${fd}`)
  const found = /^socket:\[(\d+)\]$/.exec(target)?.[1]
  if (found !== undefined) known.set(socket, found)
  return found
}

const orNothing = <A>(promise: Promise<A>): Promise<A | undefined> => promise.catch(() => undefined)

/** The bytes in the kernel's send queues, for each socket in its tables. */
export const read = async (sockets: ReadonlyArray<Duplex>): Promise<ReadonlyMap<Duplex, number>> => {
  const byInode = new Map<string, Duplex>()
  for (const socket of sockets) {
    const inode = await orNothing(inodeOf(socket))
    if (inode !== undefined) byInode.set(inode, socket)
  }
  const queues = new Map<Duplex, number>()
  if (byInode.size === 0) return queues
  for (const table of ["/proc/self/net/tcp", "/proc/self/net/tcp6"]) {
    const lines = ((await orNothing(readFile(table, "latin1"))) ?? "").split("\n")
    for (const line of lines.slice(1)) {
      // The columns are those of `proc_pid_net(5)`.
      const columns = line.trim().split(/\s+/, 10)
      const socket = byInode.get(columns[9] ?? "")
      if (socket !== undefined) queues.set(socket, Number.parseInt(columns[4]!.split(":")[0]!, 16))
    }
  }
  return queues
}
