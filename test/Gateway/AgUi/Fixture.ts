/** The official client of AG-UI, unmodified, and what it has received. */
import { HttpAgent, type Interrupt, type Message, type RunAgentParameters } from "@ag-ui/client"
import { Effect, Option } from "effect"
import { Changes } from "../../../src/Simulator/Changes.ts"

/** An event as it was received. */
export interface Received {
  readonly type: string
  readonly [name: string]: unknown
}

export interface Options {
  readonly threadId?: string
  readonly messages?: ReadonlyArray<Message>
  readonly headers?: Readonly<Record<string, string>>
}

/** A client of an agent at `url`. */
export const clientOf = (url: string, { headers = {}, messages = [], threadId = "thread-1" }: Options = {}) => {
  const events: Array<Received> = []
  const changes = new Changes()
  const agent = new HttpAgent({ url, headers, threadId, initialMessages: [...messages] })
  agent.subscribe({
    onEvent: ({ event }) => {
      events.push(event as Received)
      changes.notify()
    }
  })
  /** Runs to the end, and returns the events of the run, or why it failed. */
  const run = (parameters: RunAgentParameters = {}) =>
    Effect.promise(async signal => {
      const before = events.length
      const abortController = new AbortController()
      signal.addEventListener("abort", () => abortController.abort())
      const failure = await agent.runAgent({ ...parameters, abortController }).then(
        () => undefined,
        (error: unknown) => String(error)
      )
      const all = events.slice(before)
      return { events: all, types: all.map(({ type }) => type), last: all.at(-1), failure }
    })
  return {
    agent,
    events,
    run,
    /** Adds a message of the user and runs. */
    say: (content: string, runId?: string, id: string = crypto.randomUUID()) => {
      agent.messages = [...agent.messages, { id, role: "user", content }]
      return run(runId === undefined ? {} : { runId })
    },
    until: (matches: (event: Received) => boolean) =>
      changes.until(() => {
        const found = events.find(matches)
        return Option.fromNullable(found)
      }),
    interrupts: (): ReadonlyArray<Interrupt> => agent.pendingInterrupts
  }
}

/** The messages as texts. */
export const textsOf = (messages: ReadonlyArray<Message>): ReadonlyArray<string> =>
  messages.map(message => {
    const calls = message.role === "assistant" ? (message.toolCalls ?? []) : []
    const shown = calls.map(({ function: call }) => `${call.name}(${call.arguments})`)
    return `${message.role}: ${[...shown, ...(typeof message.content === "string" ? [message.content] : [])].join("")}`
  })

const isOfCut = (reason: unknown): boolean =>
  reason instanceof TypeError && /terminated|fetch failed/.test(reason.message)

/**
 * Until the scope closes, ignores the promises that the client rejects when its connection is cut, and that no caller can
 * get. Other unhandled rejections are those of the test. Returns how many were ignored.
 */
export const ignoringCuts = Effect.acquireRelease(
  Effect.sync(() => {
    const others = process.listeners("unhandledRejection")
    let ignored = 0
    const listener: NodeJS.UnhandledRejectionListener = (reason, promise) => {
      if (isOfCut(reason)) ignored++
      else for (const other of others) other(reason, promise)
    }
    process.removeAllListeners("unhandledRejection").on("unhandledRejection", listener)
    return { count: () => ignored, listener, others }
  }),
  ({ listener, others }) =>
    Effect.sync(() => {
      process.off("unhandledRejection", listener)
      for (const other of others) process.on("unhandledRejection", other)
    })
).pipe(Effect.map(({ count }) => count))

/** Until the scope closes, omits what the client prints of each run that fails. */
export const quiet = Effect.acquireRelease(
  Effect.sync(() => {
    const print = console.error
    console.error = (...values: ReadonlyArray<unknown>) => {
      if (values[0] !== "Agent execution failed:") print(...values)
    }
    return print
  }),
  print =>
    Effect.sync(() => {
      console.error = print
    })
)
