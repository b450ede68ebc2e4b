/** The page at /chat, in a browser, with the official `useChat` and both of its transports. */
import { randomUUID } from "node:crypto"
import type { Effect } from "effect"
import type { Locator, Page } from "playwright-core"
import { assert, describe, it } from "vitest"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { eventually, Visit, violations } from "../Console/Visit.ts"
import { absence } from "../Gateway/browser/Browser.ts"
import { freePort } from "../postgres/Server.ts"

const logOf = (page: Page): Locator => page.getByRole("log", { name: "Conversation" })

/** The texts of the messages, in order. */
const textsOf = (page: Page): Promise<ReadonlyArray<string>> => logOf(page).locator("article > .prose").allInnerTexts()

const shows = (page: Page, ...texts: ReadonlyArray<string>): Promise<void> =>
  eventually(async () => assert.deepStrictEqual(await textsOf(page), texts))

const isReady = (page: Page): Promise<void> => page.locator('[role="log"][aria-busy="false"]').waitFor()

const say = async (page: Page, text: string): Promise<void> => {
  await isReady(page)
  await page.getByLabel("Message").fill(text)
  await page.keyboard.press("Enter")
}

/** Waits for the answers to whatever a page has asked for at once. */
const untilAnswered = async (page: Page): Promise<void> => {
  for (let asked = 0; asked < 10; asked++) await page.evaluate("fetch('/health').then(answer => answer.text())")
}

const makeLatch = (): { readonly open: () => void; readonly opened: Promise<void> } => {
  let open = (): void => {}
  const opened = new Promise<void>(resolve => (open = resolve))
  return { open, opened }
}

describe.skipIf(absence !== undefined).each(["http", "websocket"])(
  `the chat page over %s${absence === undefined ? "" : ` (${absence})`}`,
  transport => {
    const visit = new Visit()
    let simulator: Effect.Effect.Success<ReturnType<typeof Simulator.make>>
    let env: Record<string, string>
    let service: Awaited<ReturnType<typeof visit.serve>>

    const start = async () => {
      service = await visit.serve(env)
    }

    const setUp = async () => {
      if (simulator !== undefined) return
      simulator = await visit.run(Simulator.make({ seed: "chat" }))
      env = { AGENT_PLATFORM_URL: simulator.platformUrl, PORT: String(await freePort()) }
      await start()
      env = { ...env, DATA_DIR: service.directory }
    }

    const open = async (id: string, page: Page): Promise<Page> => {
      await setUp()
      await page.goto(`${visit.base}/chat/?id=${id}&transport=${transport}`)
      await logOf(page).waitFor()
      return page
    }

    const inChat = async (): Promise<Page> => open(randomUUID(), visit.page)

    /** A turn whose answer the test writes: that of `/hang`. */
    const answering = async (id: string) => {
      const response = await fetch(`${visit.base}/api/v1/chat/coder/${id}/messages`)
      const { turnId } = ((await response.json()) as Array<{ metadata: { turnId: string } }>).at(-1)!.metadata
      const instance = (await visit.run(simulator.state)).instances.at(-1)!.id
      const emit = (type: string, fields: object = {}) =>
        visit.run(simulator.emit(instance, { type, turnId, ...fields }))
      const messageOf = (number: number) => `${turnId}-message-${number}`
      return {
        resolve: (requestId: string, approved: boolean) => emit("approval.resolved", { requestId, approved }),
        write: (delta: string) => emit("message.delta", { messageId: messageOf(1), delta }),
        ask: (action: string) => emit("approval.requested", { requestId: action, action, description: action }),
        askFor: (question: string, ...options: ReadonlyArray<string>) =>
          emit("question.asked", { requestId: question, question, options }),
        takeAnswer: (question: string, answer: string) => emit("question.answered", { requestId: question, answer }),
        end: async (content: string, number = 1) => {
          await emit("message.complete", { messageId: messageOf(number), content })
          await emit("turn.completed")
        }
      }
    }

    /** Answers the agent by a button, and waits until the agent has the answer. */
    const choose = async (page: Page, name: string): Promise<void> => {
      const before = (await visit.run(simulator.state)).frames.answer
      await page.getByRole("button", { name }).click()
      await visit.run(simulator.awaitState(({ frames }) => frames.answer > before))
    }

    it("shows one message in all tabs, which were loaded in the middle of it", async () => {
      const id = randomUUID()
      const page = await open(id, visit.page)
      await say(page, "/hang")
      await logOf(page).getByRole("article", { name: "Agent" }).waitFor()
      const { end, write } = await answering(id)
      await page.reload()
      await logOf(page).getByRole("article", { name: "Agent" }).waitFor()
      await write("one ")
      await shows(page, "/hang", "one ")
      await page.reload()
      await shows(page, "/hang", "one ")
      const tab = await open(id, await visit.newPage())
      await shows(tab, "/hang", "one ")
      await write("two ")
      for (const each of [page, tab]) await shows(each, "/hang", "one two ")
      await tab.reload()
      // It follows the turn again.
      await tab.getByRole("button", { name: "Stop" }).waitFor()
      await write("three")
      await end("one two three")
      for (const each of [page, tab]) {
        await isReady(each)
        await shows(each, "/hang", "one two three")
      }
      await tab.close()
    })

    it("shows the whole of an answer that ends between the two requests of a page that is loaded", async () => {
      const id = randomUUID()
      const page = await open(id, visit.page)
      await say(page, "/hang")
      await logOf(page).getByRole("article", { name: "Agent" }).waitFor()
      const { end, write } = await answering(id)
      await write("one ")
      await shows(page, "/hang", "one ")
      await page.route(
        "**/messages",
        async route => {
          const response = await route.fetch()
          await end("one two")
          const messages = `${visit.base}/api/v1/chat/coder/${id}/messages`
          await eventually(async () => {
            const all = (await (await fetch(messages)).json()) as Array<{ metadata: { status?: string } }>
            assert.strictEqual(all.at(-1)!.metadata.status, "completed")
          })
          await route.fulfill({ response })
        },
        { times: 1 }
      )
      await page.reload()
      await shows(page, "/hang", "one two")
    })

    it("shows a message that its first history lacks, also if something is said before the second one arrives", async () => {
      const id = randomUUID()
      const page = await open(id, visit.page)
      await say(page, "/ask")
      const blue = page.getByRole("button", { name: "blue" })
      await blue.waitFor()
      let isAnswered = () => {}
      const answered = new Promise<void>(resolve => (isAnswered = resolve))
      await page.route(
        "**/messages",
        async route => {
          const response = await route.fetch()
          await answered
          await route.fulfill({ response })
        },
        { times: 1 }
      )
      await page.route("**/messages", route => route.fulfill({ json: [] }), { times: 1 })
      await page.reload()
      await blue.click()
      await page.getByText("answer: blue").waitFor()
      isAnswered()
      await shows(page, "/ask", "blue", "answer: blue")
    })

    it("shows an answer once whose question is answered in a history that arrives later", async () => {
      const page = await open(randomUUID(), visit.page)
      await say(page, "/ask")
      const blue = page.getByRole("button", { name: "blue" })
      await blue.waitFor()
      let isAnswered = () => {}
      const answered = new Promise<void>(resolve => (isAnswered = resolve))
      let isShown = () => {}
      const shown = new Promise<void>(resolve => (isShown = resolve))
      await page.route(
        "**/messages",
        async route => {
          await answered
          await route.fulfill({ response: await route.fetch() })
          isShown()
        },
        { times: 1 }
      )
      await page.route("**/messages", route => route.continue(), { times: 1 })
      await page.reload()
      await blue.click()
      await page.getByText("answer: blue").waitFor()
      isAnswered()
      await shown
      await say(page, "hi")
      await shows(page, "/ask", "blue", "answer: blue", "hi", "echo: hi")
    })

    it("keeps an answer that is complete before an older history arrives", async () => {
      const page = await open(randomUUID(), visit.page)
      await say(page, "/approve")
      await page.getByRole("button", { name: "Approve" }).waitFor()
      const [isAsked, isAnswered, isShown] = [makeLatch(), makeLatch(), makeLatch()]
      await page.route(
        "**/messages",
        async route => {
          const response = await route.fetch()
          isAsked.open()
          await isAnswered.opened
          await route.fulfill({ response })
          isShown.open()
        },
        { times: 1 }
      )
      await page.route("**/messages", route => route.continue(), { times: 1 })
      await page.reload()
      await isAsked.opened
      await page.getByRole("button", { name: "Approve" }).click()
      await shows(page, "/approve", "approved")
      isAnswered.open()
      await isShown.opened
      await say(page, "hi")
      await shows(page, "/approve", "approved", "hi", "echo: hi")
    })

    it("says an answer once whose connection is lost, and which the agent has answered before the next one", async () => {
      const page = await open(randomUUID(), visit.page)
      await say(page, "/ask")
      const blue = page.getByRole("button", { name: "blue" })
      await blue.waitFor()
      let cut: string | undefined
      await page.routeWebSocket(/\/ws$/, socket => {
        const server = socket.connectToServer()
        socket.onMessage(frame => {
          const { requestId, type } = JSON.parse(String(frame))
          if (type === "send") cut ??= requestId
          server.send(frame)
        })
        server.onMessage(frame => {
          const { requestId, type } = JSON.parse(String(frame))
          if (requestId !== cut) socket.send(frame)
          else if (type === "end") socket.close()
        })
      })
      await page.route(
        "**/chat/coder",
        async route => {
          await route.fetch()
          await route.abort()
        },
        { times: 1 }
      )
      await page.reload()
      await blue.click()
      await shows(page, "/ask", "blue", "answer: blue")
      await say(page, "hi")
      await shows(page, "/ask", "blue", "answer: blue", "hi", "echo: hi")
      assert.strictEqual(await page.getByRole("alert").count(), 0)
    })

    it("shows the end of a turn that ends some time after it was stopped", async () => {
      const page = await open(randomUUID(), visit.page)
      await say(page, "/ask")
      await page.getByRole("button", { name: "blue" }).waitFor()
      let stop: (() => Promise<unknown>) | undefined
      await page.route("**/stream", route => {
        if (route.request().method() !== "DELETE") return route.continue()
        stop = () => route.fetch()
        return route.fulfill({ status: 204 })
      })
      let histories = 0
      page.on("response", response => {
        if (response.url().endsWith("/messages")) histories++
      })
      await page.getByRole("button", { name: "Stop" }).click()
      await eventually(async () => assert.isAtLeast(histories, 2))
      await stop!()
      await page.getByText("Stopped.").waitFor()
      assert.strictEqual(await page.getByRole("button", { name: "blue" }).count(), 0)
      await page.unroute("**/stream")
    })

    it("keeps the first of two decisions when it is looked at before the second one", async () => {
      const id = randomUUID()
      const page = await open(id, visit.page)
      await say(page, "/hang")
      await logOf(page).getByRole("article", { name: "Agent" }).waitFor()
      const { ask } = await answering(id)
      await ask("one")
      await ask("two")
      let histories = 0
      page.on("requestfinished", request => {
        if (request.url().endsWith("/messages")) histories++
      })
      await page.reload()
      const approve = page.getByRole("button", { name: "Approve" })
      await approve.nth(1).waitFor()
      await eventually(async () => assert.strictEqual(histories, 2))
      await approve.first().click()
      await eventually(async () => assert.strictEqual(await approve.count(), 1))
      await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
      await page.evaluate("fetch('/health').then(answer => answer.text())")
      assert.strictEqual(histories, 2)
      await approve.click()
      await eventually(async () => assert.strictEqual(await approve.count(), 0))
    })

    it("shows what another tab has decided at the same time, however late the agent continues", async () => {
      const id = randomUUID()
      const page = await visit.newPage()
      await page.clock.install()
      await open(id, page)
      await say(page, "/hang")
      await logOf(page).getByRole("article", { name: "Agent" }).waitFor()
      const { ask, end, resolve } = await answering(id)
      await ask("one")
      const tab = await open(id, await visit.newPage())
      for (const each of [page, tab]) await each.getByRole("button", { name: "Approve" }).waitFor()
      await choose(tab, "Deny")
      // Until the agent continues, the service shows it as undecided.
      await page.getByRole("button", { name: "Approve" }).click()
      await page.getByText("was answered before").waitFor()
      await page.getByRole("button", { name: "Approve" }).waitFor()
      const wait = async () => {
        await page.clock.fastForward(10_000)
        await untilAnswered(page)
      }
      for (let waits = 0; waits < 6; waits++) await wait()
      await resolve("one", false)
      await end("denied")
      await shows(tab, "/hang", "denied")
      await wait()
      await shows(page, "/hang", "denied")
      for (const each of [page, tab]) {
        await isReady(each)
        await each.close()
      }
    })

    it("shows the answer of another tab that was first, in the place of its own", async () => {
      const id = randomUUID()
      const page = await open(id, visit.page)
      await say(page, "/hang")
      await logOf(page).getByRole("article", { name: "Agent" }).waitFor()
      const { askFor, end, takeAnswer, write } = await answering(id)
      await write("hm")
      await askFor("Which color?", "red", "blue")
      const tab = await open(id, await visit.newPage())
      for (const each of [page, tab]) await each.getByRole("button", { name: "blue" }).waitFor()
      await choose(tab, "blue")
      await page.getByRole("button", { name: "red" }).click()
      await page.getByRole("alert").waitFor()
      await takeAnswer("Which color?", "blue")
      await end("done", 2)
      for (const each of [page, tab]) {
        await shows(each, "/hang", "hm", "blue", "done")
        await isReady(each)
      }
      assert.strictEqual(await page.getByRole("alert").count(), 0)
      await tab.close()
    })

    it("lets a person stop the agent before its first words", async () => {
      const id = randomUUID()
      const page = await open(id, visit.page)
      await say(page, "/hang")
      await logOf(page).getByRole("article", { name: "Agent" }).waitFor()
      await (await answering(id)).end("done")
      await shows(page, "/hang", "done")
      // The simulated agent is still busy.
      await say(page, "hi")
      await eventually(async () => assert.isTrue(await page.getByRole("button", { name: "Stop" }).isEnabled()))
    })

    it("shows what another tab has said, when it is looked at", async () => {
      const id = randomUUID()
      const page = await open(id, visit.page)
      const tab = await open(id, await visit.newPage())
      await say(tab, "hi")
      await shows(tab, "hi", "echo: hi")
      assert.deepStrictEqual(await textsOf(page), [])
      await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
      await shows(page, "hi", "echo: hi")
      await tab.close()
    })

    it("stops the agent, also after a reload, for all tabs", async () => {
      const id = randomUUID()
      const page = await open(id, visit.page)
      await say(page, "/hang")
      await page.getByRole("button", { name: "Stop" }).click()
      await page.getByText("Stopped.").waitFor()
      await isReady(page)
      await say(page, "/hang")
      await logOf(page).getByRole("article", { name: "Agent" }).nth(1).waitFor()
      await page.reload()
      const tab = await open(id, await visit.newPage())
      await tab.getByRole("button", { name: "Stop" }).waitFor()
      await page.getByRole("button", { name: "Stop" }).click()
      for (const each of [page, tab]) {
        await each.getByText("Stopped.").nth(1).waitFor()
        await isReady(each)
        assert.strictEqual(await logOf(each).getByRole("article", { name: "Agent" }).count(), 2)
      }
      await tab.close()
    })

    it("asks for approvals and answers, also after a reload", async () => {
      const page = await inChat()
      await say(page, "/approve")
      await page.getByRole("button", { name: "Approve" }).waitFor()
      assert.deepStrictEqual(await violations(page), [])
      await page.reload()
      await page.getByText("rm -r build").waitFor()
      await page.getByRole("button", { name: "Approve" }).click()
      await shows(page, "/approve", "approved")
      await say(page, "/approve")
      await page.getByRole("button", { name: "Deny" }).click()
      await shows(page, "/approve", "approved", "/approve", "denied")
      await say(page, "/ask")
      await page.reload()
      await page.getByRole("button", { name: "blue" }).click()
      const asked = ["/approve", "approved", "/approve", "denied", "/ask", "blue", "answer: blue"]
      await shows(page, ...asked)
      await say(page, "/ask")
      await page.getByRole("button", { name: "blue" }).waitFor()
      await say(page, "green")
      await shows(page, ...asked, "/ask", "green", "answer: green")
      await isReady(page)
      await page.reload()
      await shows(page, ...asked, "/ask", "green", "answer: green")
    })

    it("shows the error of a turn once, and continues", async () => {
      const page = await inChat()
      await say(page, "/fail badly")
      await page.getByText("badly", { exact: true }).waitFor()
      await isReady(page)
      await page.reload()
      await page.getByText("badly", { exact: true }).waitFor()
      await say(page, "/help")
      await page.getByText("/ask: asks a question").waitFor()
    })

    it("does not ask for a chat again and again that it cannot follow", async () => {
      await setUp()
      const page = await visit.newPage()
      await page.clock.install()
      await page.route("**/stream", route => route.abort())
      await page.routeWebSocket(/\/ws$/, socket => socket.close())
      let requests = 0
      page.on("request", request => {
        if (request.url().endsWith("/messages")) requests++
      })
      await open(randomUUID(), page)
      await page.clock.pauseAt(Date.now() + 60_000)
      await page.getByText("The connection was lost").waitFor()
      const settled = async (): Promise<number> => {
        let before = -1
        while (before !== requests) {
          before = requests
          await untilAnswered(page)
        }
        return requests
      }
      let before = await settled()
      for (const pause of [1000, 2000, 4000]) {
        await page.clock.runFor(pause)
        const after = await settled()
        assert.isAtMost(after - before, 2 * 2, "the history, and once more after the resume")
        before = after
      }
      await page.clock.resume()
      await page.close()
    })

    it("keeps what was said when the service is killed and restarted in the middle of an answer", async () => {
      const id = randomUUID()
      const page = await open(id, visit.page)
      await say(page, "/hang")
      await logOf(page).getByRole("article", { name: "Agent" }).waitFor()
      const { write } = await answering(id)
      await write("one ")
      await shows(page, "/hang", "one ")
      const tab = await open(id, await visit.newPage())
      await shows(tab, "/hang", "one ")
      const lateId = randomUUID()
      const late = await open(lateId, await visit.newPage())
      await say(late, "/hang")
      await logOf(late).getByRole("article", { name: "Agent" }).waitFor()
      await (await answering(lateId)).write("half ")
      await shows(late, "/hang", "half ")
      await late.route("**/messages", route => route.abort())
      await visit.run(service.kill("SIGKILL"))
      await visit.run(service.ended)
      for (const each of [page, tab, late]) await each.getByText("The connection was lost").waitFor()
      // It is sent once the service answers again.
      await page.getByLabel("Message").fill("/approve")
      await page.keyboard.press("Enter")
      await page.getByText("The connection was lost").waitFor()
      await start()
      await page.getByRole("button", { name: "Approve" }).click()
      await shows(page, "/hang", "one ", "/approve", "approved")
      await isReady(page)
      assert.strictEqual(await page.getByText("The gateway was restarted during the turn").count(), 1)
      await tab.getByText("The gateway was restarted during the turn").waitFor()
      await tab.reload()
      await shows(tab, "/hang", "one ", "/approve", "approved")
      await tab.close()
      // It says something before it has learned what has happened.
      await say(late, "hi")
      await late.getByText("echo: hi").waitFor()
      await late.unroute("**/messages")
      await late.getByText("The gateway was restarted during the turn").waitFor()
      await shows(late, "/hang", "half ", "hi", "echo: hi")
      await late.close()
    })
  }
)
