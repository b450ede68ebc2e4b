/**
 * Redis behind webdis, its interface for HTTP. Redis appends each write to a file and flushes it before it answers
 * (`appendfsync always`).
 */
import { type ChildProcess, spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"

const directory = process.env.DATA_DIR ?? "."

const freePort = (): Promise<number> =>
  new Promise((resolve, reject) => {
    const server = createServer().once("error", reject)
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0))
    })
  })

const redisPort = await freePort()
const configuration = join(directory, "webdis.json")
writeFileSync(
  configuration,
  JSON.stringify({
    redis_host: "127.0.0.1",
    redis_port: redisPort,
    http_host: "127.0.0.1",
    http_port: Number(process.env.PORT),
    threads: 1,
    pool_size: 8,
    daemonize: false,
    websockets: false,
    database: 0,
    acl: [],
    verbosity: 0,
    logfile: join(directory, "webdis.log")
  })
)

const redis = ["--port", String(redisPort), "--dir", directory, "--save", "", "--appendonly", "yes"]
const children: ReadonlyArray<ChildProcess> = [
  spawn("redis-server", [...redis, "--appendfsync", "always"], { stdio: "ignore" }),
  spawn("webdis", [configuration], { stdio: "ignore" })
]
const end = (): void => {
  for (const child of children) child.kill("SIGKILL")
  process.exit()
}
for (const child of children) child.once("exit", end)
process.once("SIGTERM", end)
