/**
 * The lengths of the kernel's send queues, from /proc on Linux.
 *
 * The kernel accepts more only when a third of a queue of 4 MiB is free, which takes a slow client a minute. Until then
 * only the kernel knows that the client reads. Without /proc, such a client looks like one that does not read.
 *
 * The kernel's tables cannot be read in part: they have a line for each socket of the network namespace, of all
 * processes, and 10,000 lines take 40 ms of a processor, a third of that on the calling thread. So longer tables are
 * read less often, and up to a limit.
 */
import { type FileHandle, open, readlink } from "node:fs/promises"
import type { Duplex } from "node:stream"

interface Descriptor {
  readonly _handle?: { readonly fd: number } | null
}

/** The tables of `proc_pid_net(5)`. */
const kernelTables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"]

/** The next reading waits a second for each of this number of lines: about 1 % of a processor. */
const linesPerSecond = 2500

/**
 * Milliseconds between two readings. The longest is a third of the time after which clients that do not read are cut.
 */
const pauses = { shortest: 1000, longest: 10_000 }

/** Maximum bytes that are read from all tables, about 100,000 lines. */
const maxBytes = 16 * 1024 * 1024

/** Maximum number of sockets that are looked up at a time. Slow clients beyond that may count as not reading. */
const maxSockets = 1000

const pieceBytes = 64 * 1024

/** A line of a table, with the bytes in the send queue and the inode. */
const line = /^ *\d+: \S+ \S+ \S+ ([0-9A-F]+):\S+ \S+ \S+ +\d+ +\d+ (\d+) .*\n/gm

const orNothing = <A>(promise: Promise<A>): Promise<A | undefined> => promise.catch(() => undefined)

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

/** Reads the queues for one server. */
export class KernelQueues {
  #dueAt = Number.NEGATIVE_INFINITY

  constructor(private readonly tables: ReadonlyArray<string> = kernelTables) {}

  /** Whether it is time to read again, by the length of the tables at the last reading. Monotonic milliseconds. */
  isDue(now: number): boolean {
    return now >= this.#dueAt
  }

  /** The bytes in the kernel's send queues, for each of the sockets in the tables. */
  async read(sockets: ReadonlyArray<Duplex>, now: number): Promise<ReadonlyMap<Duplex, number>> {
    const byInode = new Map<string, Duplex>()
    for (const socket of sockets.slice(0, maxSockets)) {
      const inode = await orNothing(inodeOf(socket))
      if (inode !== undefined) byInode.set(inode, socket)
    }
    const queues = new Map<Duplex, number>()
    let lines = 0
    let left = maxBytes
    for (const table of byInode.size === 0 ? [] : this.tables) {
      const handle = await orNothing(open(table))
      if (handle === undefined) continue
      try {
        for await (const piece of pieces(handle, left)) {
          left -= piece.length
          for (const [, queued = "", inode = ""] of piece.matchAll(line)) {
            lines++
            const socket = byInode.get(inode)
            if (socket !== undefined) queues.set(socket, Number.parseInt(queued, 16))
          }
        }
      } finally {
        await handle.close()
      }
    }
    const pause = (1000 * lines) / linesPerSecond
    this.#dueAt = now + Math.min(Math.max(pause, pauses.shortest), pauses.longest)
    return queues
  }
}

/** A file in pieces of whole lines, up to `most` bytes; it ends if the file cannot be read. */
async function* pieces(handle: FileHandle, most: number): AsyncGenerator<string> {
  const buffer = Buffer.allocUnsafe(pieceBytes)
  let rest = ""
  for (let left = most; left > 0; ) {
    const bytes = (await orNothing(handle.read(buffer, 0, pieceBytes, null)))?.bytesRead ?? 0
    if (bytes === 0) return
    left -= bytes
    const text = rest + buffer.toString("latin1", 0, bytes)
    const end = text.lastIndexOf("\n") + 1
    rest = text.slice(end)
    yield text.slice(0, end)
  }
}
