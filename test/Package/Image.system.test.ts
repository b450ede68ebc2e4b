/** The image, built and run where there is an engine for it. */
import { execFile, spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, it } from "vitest"

const root = fileURLToPath(new URL("../..", import.meta.url))

const hasEngine = spawnSync("docker", ["info"]).status === 0

const docker = async (...args: ReadonlyArray<string>): Promise<string> => {
  const { stdout } = await promisify(execFile)("docker", args, { cwd: root, maxBuffer: 64 * 1024 * 1024 })
  return stdout.trim()
}

const image = `causeway-test:${process.pid}`

describe.skipIf(!hasEngine)(`the image${hasEngine ? "" : ", skipped: no engine for containers"}`, () => {
  beforeAll(() => docker("build", "--file", "deploy/Dockerfile", "--tag", image, "."), 900_000)
  afterAll(() => docker("image", "rm", "--force", image))

  it("has less than 250 MB, and no user with rights", async () => {
    const [size, user] = (await docker("image", "inspect", "--format", "{{.Size}} {{.Config.User}}", image)).split(" ")
    expect(Number(size)).toBeLessThan(250_000_000)
    expect(user).toBe("65532:65532")
  })

  it("serves with a root file system that is read only, is healthy, and ends on SIGTERM", async () => {
    const place = ["--publish", "127.0.0.1::8080", "--read-only", "--env", "KV_API_KEY=a-key-for-this-test"]
    const container = await docker("run", "--detach", ...place, image)
    try {
      const address = `http://${(await docker("port", container, "8080/tcp")).split("\n")[0]}/api/v1`
      const isReady = () =>
        fetch(`${address}/ready?strict=1`).then(
          ({ ok }) => ok,
          () => false
        )
      await expect.poll(isReady, { timeout: 300_000 }).toBe(true)
      const headers = { authorization: "Bearer a-key-for-this-test", "content-type": "application/json" }
      const written = await fetch(`${address}/kv/n/k`, { method: "PUT", headers, body: '{"value":1}' })
      expect(written.status).toBe(200)
      const health = await docker("image", "inspect", "--format", "{{json .Config.Healthcheck.Test}}", image)
      const [form, ...command]: ReadonlyArray<string> = JSON.parse(health)
      expect(form).toBe("CMD")
      await docker("exec", container, ...command)
      await docker("stop", "--time", "30", container)
      expect(await docker("inspect", "--format", "{{.State.ExitCode}}", container)).toBe("0")
    } finally {
      await docker("rm", "--force", "--volumes", container)
    }
  })
})
