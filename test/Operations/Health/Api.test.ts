import { assert, describe, it } from "@effect/vitest"
import { FastCheck as fc, Option } from "effect"
import { type Dependency, overall, Status } from "../../../src/Operations/Health/Api.ts"
import * as Health from "../../../src/Operations/Health/Report.ts"

const statuses = fc.constantFrom(...Status.literals)

const dependencies: fc.Arbitrary<ReadonlyArray<Dependency>> = fc.uniqueArray(
  fc.record({ name: fc.constantFrom("agent_platform", "inference", "replication"), status: statuses }),
  { selector: ({ name }) => name }
)

describe("the overall status", () => {
  it("follows the table of the specification", () => {
    const of = (agent: Status | undefined, ...others: ReadonlyArray<Status>) =>
      overall([
        ...others.map(status => ({ name: "inference", status })),
        ...(agent === undefined ? [] : [{ name: "agent_platform", status: agent }])
      ])
    assert.strictEqual(of(undefined), "ok")
    assert.strictEqual(of("ok"), "ok")
    assert.strictEqual(of("degraded"), "degraded")
    assert.strictEqual(of("unhealthy"), "unhealthy")
    assert.strictEqual(of("ok", "unhealthy"), "degraded")
    assert.strictEqual(of(undefined, "unhealthy"), "degraded")
    assert.strictEqual(of("degraded", "unhealthy"), "degraded")
    assert.strictEqual(of("unhealthy", "ok"), "unhealthy")
    assert.strictEqual(of("ok", "ok", "degraded"), "degraded")
  })

  it("depends on the agent platform first, and not on the order", () => {
    fc.assert(
      fc.property(dependencies, all => {
        const agent = all.find(({ name }) => name === "agent_platform")?.status
        const expected =
          agent === "unhealthy" ? "unhealthy" : all.some(({ status }) => status !== "ok") ? "degraded" : "ok"
        assert.strictEqual(overall(all), expected)
        assert.strictEqual(overall([...all].reverse()), expected)
      })
    )
  })
})

describe("an upstream's error", () => {
  it("names the kind of failure and no address", () => {
    const detail = (error: string) => Health.detailOf({ error })
    assert.strictEqual(detail("No answer within 2s"), "No answer within 2s")
    const codes = {
      ECONNREFUSED: "No connection to the agent platform: connect ECONNREFUSED 10.1.2.3:8443",
      ENOTFOUND: "getaddrinfo ENOTFOUND platform.internal",
      ECONNRESET: "read ECONNRESET",
      UND_ERR_SOCKET: "UND_ERR_SOCKET other side closed",
      CERT_HAS_EXPIRED: "CERT_HAS_EXPIRED certificate has expired",
      DEPTH_ZERO_SELF_SIGNED_CERT: "DEPTH_ZERO_SELF_SIGNED_CERT self-signed certificate"
    }
    for (const [code, message] of Object.entries(codes)) assert.strictEqual(detail(message), `No connection (${code})`)
    for (const message of ["", "http://user:secret@host/ is bad", "no EHOST.example answers", "E-SECRET"]) {
      assert.strictEqual(detail(message), "No connection")
    }
    assert.strictEqual(Health.detailOf({ statusCode: 500, error: "at http://host" }), "GET /health answered 500")
  })

  it("has only known words of a message", () => {
    fc.assert(
      fc.property(fc.string(), fc.domain(), fc.ipV4(), fc.nat(65_535), (text, domain, ip, port) => {
        const shown = Health.detailOf({ error: `${text} connect ECONNREFUSED ${domain}:${port} ${ip}` })
        assert.match(shown, /^No connection \([A-Z_]+\)$/)
      })
    )
  })

  it("is searched in linear time, however long it is", () => {
    // With every way to divide the letters tried these would take hours.
    for (const letters of ["A".repeat(4_000_000), `${"A".repeat(500)}.`, "A_".repeat(450)]) {
      assert.match(Health.detailOf({ error: `E${letters}a` }), /^No connection/)
    }
  })

  it("is absent if nothing is wrong", () => {
    assert.deepStrictEqual(
      Health.dependency("inference", Option.some({ status: "ok", latencyMs: 3, statusCode: 200 })),
      Option.some({ name: "inference", status: "ok", latencyMs: 3 })
    )
    assert.deepStrictEqual(Health.dependency("inference", Option.none()), Option.none())
  })
})
