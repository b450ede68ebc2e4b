/**
 * The console where there are several credentials: a deployment with tenants, and an application with users of its own.
 */
import * as HttpApi from "@effect/platform/HttpApi"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Effect, Layer, Logger, Option } from "effect"
import type { Page } from "playwright-core"
import { assert, beforeAll, describe, it } from "vitest"
import {
  ApiError,
  Causeway,
  ConsoleGroup,
  DrainingSignal,
  GatewayGroup,
  HealthRoutes,
  type Identity,
  KvRoutes,
  NodeServer
} from "../../src/exports/index.ts"
import { memory } from "../../src/exports/store.ts"
import { UpstreamClients } from "../../src/exports/upstream.ts"
import * as Gateway from "../../src/Gateway/Gateway.ts"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { secret, token } from "../Gateway/survival/Token.ts"
import { portOf } from "../Harness.ts"
import { freePort } from "../postgres/Server.ts"
import { launch as launchService } from "../service/Command.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { builtPages } from "./Service.ts"
import { describeVisit, violations } from "./Visit.ts"

describeVisit("The console and its credentials", visit => {
  const { run, signIn, signOut } = visit
  let page: Page
  let simulator: Effect.Effect.Success<ReturnType<typeof Simulator.make>>

  beforeAll(async () => {
    page = visit.page
    // Of both services that are visited.
    visit.base = "http://127.0.0.1:"
    simulator = await run(Simulator.make({ seed: 1, pace: "1 millis" }))
  })

  const view = (name: string) => page.getByRole("navigation").getByRole("link", { name, exact: true }).click()

  const create = async () => {
    await page.getByRole("button", { name: "New" }).click()
    await visit.create()
  }

  const say = async (text: string) => {
    await visit.say(text)
    await page.getByRole("log").getByText(`echo: ${text}`).waitFor()
  }

  const untilRefused = (text: string) => page.getByRole("alert").filter({ hasText: text }).waitFor()

  describe("in production", () => {
    let address = ""
    let env: Readonly<Record<string, string>> = {}
    let server: Effect.Effect.Success<ReturnType<typeof launchService>>
    const tokens = { anna: "", ben: "" }

    const start = async (more: Readonly<Record<string, string>> = {}) => {
      server = await run(launchService({ ...env, ...more }))
      const [, port] = await run(server.shows(/"message":"Listening".*?"port":(\d+)[,}]/))
      return port!
    }

    beforeAll(async () => {
      tokens.anna = await Effect.runPromise(token("acme", "anna"))
      tokens.ben = await Effect.runPromise(token("globex", "ben"))
      env = {
        DATA_DIR: await run(temporaryDirectory),
        PORT: String(await freePort()),
        NODE_ENV: "production",
        KV_API_KEY: "a-key-that-writes",
        AGENT_PLATFORM_URL: simulator.platformUrl,
        GATEWAY_JWT_SECRET: secret
      }
      address = `http://127.0.0.1:${await start()}/console`
    })

    it("shows the figures of the service with the key alone", async () => {
      await signIn("a-key-that-writes", address)
      await page.getByText("reads and writes").waitFor()
      await page.getByText("Longest lag").waitFor()
      await page.getByRole("img", { name: /^Requests: succeeded/ }).waitFor()
    })

    it("asks for the token of a tenant in addition to the key, and shows the tenant and the user", async () => {
      await view("Sessions")
      await page.getByText("With the current key, the gateway answers").waitFor()
      assert.deepStrictEqual(await violations(page), [])
      await page.getByLabel("Token").fill(`${tokens.anna.slice(0, -4)}AAAA`)
      await page.getByRole("button", { name: "Open sessions" }).click()
      await untilRefused("signature")
      await page.getByLabel("Token").fill(tokens.anna)
      await page.getByRole("button", { name: "Open sessions" }).click()
      await page.getByText("No sessions yet.").waitFor()
      await page.getByText("Tenant acme, as anna").waitFor()
      await create()
      await say("hello from anna")
      assert.deepStrictEqual(await violations(page), [])
    })

    it("keeps all of them in the tab", async () => {
      await page.reload()
      await page.getByRole("log").getByText("echo: hello from anna").waitFor()
      await view("Store")
      // What the gateway keeps in the store is hidden until it is asked for.
      assert.strictEqual(await page.getByRole("link", { name: /^tenant:acme \/ sessions/ }).count(), 0)
      await page.getByLabel("1 namespace of the service").check()
      await page.getByRole("link", { name: /^tenant:acme \/ sessions/ }).waitFor()
      await view("Overview")
      await page.getByRole("img", { name: /^Requests: succeeded \d/ }).waitFor()
    })

    it("shows the sessions of another tenant with another token", async () => {
      await view("Sessions")
      await page.getByRole("button", { name: "Change", exact: true }).click()
      await page.getByRole("button", { name: "Cancel" }).click()
      await page.getByRole("link", { name: /hello from anna/ }).waitFor()
      await page.getByRole("button", { name: "Change", exact: true }).click()
      await page.getByLabel("Token").fill(tokens.ben)
      await page.getByRole("button", { name: "Open sessions" }).click()
      await page.getByText("Tenant globex, as ben").waitFor()
      await page.getByText("No sessions yet.").waitFor()
      await signOut()
    })

    it("shows sessions alone to the bearer of a token, and asks for another one when it is no longer valid", async () => {
      await signIn(tokens.anna, address)
      await page.getByText("sessions only", { exact: true }).waitFor()
      assert.strictEqual(await page.getByRole("link", { name: "Store" }).count(), 0)
      await view("Sessions")
      await page.getByRole("link", { name: /hello from anna/ }).click()
      await say("hello again")

      await run(server.kill("SIGTERM"))
      await run(server.ended)
      const renewed = "another secret of at least thirty-two bytes"
      await start({ GATEWAY_JWT_SECRET: renewed })
      await page.getByText("Sessions require a token").waitFor()
      await page.getByText(/the gateway answers: .*signature/).waitFor()
      await page.getByLabel("Token").fill(await Effect.runPromise(token("acme", "anna", renewed)))
      await page.getByRole("button", { name: "Open sessions" }).click()
      await page.getByRole("link", { name: /hello from anna/ }).click()
      await say("hello with a new token")
      await signOut()
    })
  })

  describe("in an application whose users belong to tenants", () => {
    const users = new Map<string, Identity.IdentityShape>([
      ["cookie-of-anna", { access: "write", actor: "anna", tenant: "acme" }],
      ["cookie-of-root", { access: "write", actor: "root" }]
    ])

    const layer = () =>
      Causeway.layerEdge({
        api: HttpApi.make("host")
          .add(KvRoutes.prefix("/store"))
          .add(HealthRoutes.prefix("/probes"))
          .add(GatewayGroup.prefix("/agents"))
          .add(ConsoleGroup.prefix("/admin")),
        server: { host: "127.0.0.1", port: 0, gracePeriod: 100 },
        store: memory,
        gateway: Gateway.layer(),
        upstream: UpstreamClients.layer({
          agentPlatform: { url: Option.some(simulator.platformUrl), apiKey: Option.none() },
          inference: { url: simulator.inferenceUrl, apiKey: Option.none() }
        }),
        identity: ({ credential }) => {
          const found = users.get(/^Bearer (.*)$/.exec(credential ?? "")?.[1] ?? "")
          return found === undefined ? new ApiError.Unauthorized({ error: "Sign in" }) : Effect.succeed(found)
        },
        pages: { directory: builtPages() }
      }).pipe(Layer.provide([DrainingSignal.layer, NodeHttpClient.layerUndici, Logger.remove(Logger.defaultLogger)]))

    let address = ""

    beforeAll(async () => {
      const context = await run(Layer.build(layer()))
      const port = await Effect.runPromise(Effect.provide(Effect.map(NodeServer.NodeServer, portOf), context))
      address = `http://127.0.0.1:${port}/admin/console`
    })

    const enter = async (namespace: string, key: string) => {
      await page.getByLabel("Find or open a namespace").fill(namespace)
      await page.keyboard.press("Enter")
      await page.getByText("This namespace has no entries.").waitFor()
      await page.getByRole("button", { name: "New" }).click()
      await page.getByRole("dialog").getByLabel("Key").fill(key)
      await page.getByRole("dialog").getByRole("button", { name: "Create" }).click()
      await page.getByText("version 1", { exact: true }).waitFor()
    }

    it("shows a user what the tenant has, and nothing else", async () => {
      await signIn("cookie-of-root", address)
      await view("Store")
      await enter("common", "for-all")
      await enter("tenant:globex/settings", "of-globex")
      await signOut()

      await signIn("cookie-of-anna", address)
      await page.getByText("reads and writes").waitFor()
      await view("Store")
      await page.getByText("No namespaces yet.").waitFor()
      await page.getByLabel("Find or open a namespace").fill("common")
      await page.keyboard.press("Enter")
      await page.getByText("namespace is not tenant:acme, nor does it begin with tenant:acme/").waitFor()
      await enter("tenant:acme/settings", "of-acme")
      await page.getByText(/anna/).first().waitFor()
      await view("Feed")
      const feed = page.getByRole("list", { name: "Changes, newest first" })
      await feed.getByRole("link", { name: /of-acme.*anna/ }).waitFor()
      assert.strictEqual(await feed.getByRole("link").count(), 1)
      await view("Sessions")
      await create()
      await say("hello from acme")
      await signOut()
    })
  })
})
