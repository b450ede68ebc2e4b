/** The names and paths of the probes, in code and in the page for operators. */
import * as HttpApi from "@effect/platform/HttpApi"
import { describe, expect, it } from "vitest"
import { endpointsOf } from "../../../src/Http/Router.ts"
import { HealthGroup, HealthRoutes } from "../../../src/Operations/Health/Api.ts"
import { read } from "../../Docs/Page.ts"

const pathsOf = (group: typeof HealthGroup): Readonly<Record<string, string>> =>
  Object.fromEntries(
    endpointsOf(HttpApi.make("probes").add(group)).map(({ endpoint }) => [endpoint.name, endpoint.path])
  )

describe("the probes", () => {
  it("have the names of their paths in an application", () => {
    for (const [name, path] of Object.entries(pathsOf(HealthRoutes))) expect(path).toBe(`/${name}`)
  })

  it("have the paths of the contract in the service", () => {
    expect(pathsOf(HealthGroup)).toEqual({ health: "/health", alive: "/api/v1/health", ready: "/api/v1/ready" })
  })

  it("are the rows of the table of docs/operate/operations.md", () => {
    const [service, application] = [pathsOf(HealthGroup), pathsOf(HealthRoutes)]
    const page = read("docs/operate/operations.md")
    for (const name of Object.keys(service))
      expect(page).toContain(`| \`${service[name]}\` | \`${application[name]}\` |`)
  })
})
