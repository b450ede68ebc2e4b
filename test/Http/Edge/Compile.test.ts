import * as HttpApi from "@effect/platform/HttpApi"
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import { Effect } from "effect"
import { describe, expect, it } from "vitest"
import { StoreApi as Api } from "../../../src/app/Api.ts"
import { asyncApi, handlersOf } from "../../../src/app/Causeway/Services.ts"
import * as Auth from "../../../src/Http/Auth/Auth.ts"
import { compile } from "../../../src/Http/Edge/Edge.ts"
import type { AnyHandlers } from "../../../src/Http/Endpoints.ts"
import { empty } from "../../../src/Http/Reply.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { auth, services } from "../../Harness.ts"

const guards = Effect.runSync(Effect.provide(Auth.guards, auth))

const all: Readonly<Record<string, AnyHandlers>> = await Effect.runPromise(
  Effect.provide(Effect.scoped(Effect.all(handlersOf(Api, asyncApi()))), services(Memory.layer))
)

describe("compile", () => {
  it("serves every endpoint of the service", () => {
    const router = compile(Api, all, guards)
    const served: Array<string> = []
    HttpApi.reflect(Api, {
      onGroup: () => undefined,
      onEndpoint: ({ endpoint, group }) => {
        const path = endpoint.path.replaceAll(/:[a-z]+/g, "x")
        expect(router.find(endpoint.method, path)?.value.name).toBe(`${group.identifier}.${endpoint.name}`)
        served.push(endpoint.name)
      }
    })
    expect(served).toContain("changesSocket")
  })

  it("refuses an endpoint without a handler", () => {
    const { cluster: _, ...others } = all
    expect(() => compile(Api, others, guards)).toThrow("The endpoint cluster.status has no handler")
  })

  it("refuses a middleware that it would silently omit", () => {
    class Strange extends HttpApiMiddleware.Tag<Strange>()("test/Strange") {}
    const group = HttpApiGroup.make("odd").add(HttpApiEndpoint.get("one", "/one").middleware(Strange))
    const api = HttpApi.make("strange").add(group)
    const handlers = { odd: { one: () => Effect.succeed(empty(204)) } }
    expect(() => compile(api, handlers, guards)).toThrow(/odd\.one .* test\/Strange/)
  })
})
