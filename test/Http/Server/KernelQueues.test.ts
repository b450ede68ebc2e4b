import { once } from "node:events"
import { mkdtempSync, readlinkSync, rmSync, writeFileSync } from "node:fs"
import * as Net from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it, onTestFinished } from "vitest"
import { KernelQueues } from "../../../src/Http/Server/NodeInternals.ts"

const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

/** A line as Linux writes it. */
const row = (index: number, inode: number, queued = 0) =>
  `${String(index).padStart(4)}: 0100007F:1F90 0100007F:C350 01 ${queued.toString(16).toUpperCase().padStart(8, "0")}:00000000 02:000A7D8C 00000000     0        0 ${inode} 2 0000000065f1ec48 20 4 30 10 -1`.padEnd(
    149
  )

/** A table of so many lines, among which those of some sockets are. */
const table = (lines: number, queues: ReadonlyMap<number, number>): string => {
  const file = join(mkdtempSync(join(tmpdir(), "causeway-")), "tcp")
  onTestFinished(() => rmSync(join(file, ".."), { recursive: true }))
  const others = Array.from({ length: lines - queues.size }, (_, index) => row(index, 900_000_000 + index, index))
  const ours = [...queues].map(([inode, queued], index) => row(lines + index, inode, queued))
  const middle = Math.floor(others.length / 2)
  const rows = [...others.slice(0, middle), ...ours, ...others.slice(middle)]
  writeFileSync(file, `${head}${rows.join("\n")}\n`)
  return file
}

const connect = async () => {
  const server = Net.createServer()
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  const socket = Net.connect((server.address() as Net.AddressInfo).port, "127.0.0.1")
  await once(socket, "connect")
  onTestFinished(() => {
    socket.destroy()
    server.close()
  })
  const { fd } = (socket as unknown as { readonly _handle: { readonly fd: number } })._handle
  return { socket, inode: Number(/\d+/.exec(readlinkSync(`/proc/self/fd/${fd}`))![0]) }
}

describe.runIf(process.platform === "linux")("the kernel's queues", () => {
  it("are found in tables of any length", async () => {
    const { inode, socket } = await connect()
    const other = await connect()
    for (const lines of [1, 27, 500, 12_000]) {
      const queues = new KernelQueues([table(lines, new Map([[inode, 0xab12]])), "/nowhere/tcp6"])
      expect(await queues.read([socket, other.socket], 0)).toEqual(new Map([[socket, 0xab12]]))
    }
    const both = [table(10, new Map([[inode, 1]])), table(10, new Map([[other.inode, 2]]))]
    const found = await new KernelQueues(both).read([socket, other.socket], 0)
    expect([...found.values()]).toEqual([1, 2])
  })

  it("are read less often the longer the tables are", async () => {
    const { inode, socket } = await connect()
    for (const [lines, pause] of [
      [1, 1000],
      [2500, 1000],
      [10_000, 4000],
      [40_000, 10_000]
    ] as const) {
      const queues = new KernelQueues([table(lines, new Map([[inode, 1]]))])
      expect(queues.isDue(0)).toBe(true)
      await queues.read([socket], 5000)
      expect([5000 + pause - 1, 5000 + pause].map(now => queues.isDue(now))).toEqual([false, true])
    }
  })

  it("are searched only in a part of very long tables", async () => {
    const { inode, socket } = await connect()
    const file = table(300_000, new Map([[inode, 1]]))
    expect(await new KernelQueues([file]).read([socket], 0)).toEqual(new Map())
  })
})
