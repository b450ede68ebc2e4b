/** An AG-UI agent that is built with the official encoder, on a real port. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { type BaseEvent, EventType, type Message, type RunAgentInput } from "@ag-ui/core"
import { RunAgentInputSchema } from "@ag-ui/core/schemas"
import { EventEncoder } from "@ag-ui/encoder"
import { Effect, Option } from "effect"
import { Changes } from "../../../src/Simulator/Changes.ts"

/** A request for a run, and its answer. */
export class Run {
  isClosed = false
  private readonly encoder: EventEncoder

  constructor(
    readonly input: RunAgentInput,
    readonly request: IncomingMessage,
    readonly response: ServerResponse
  ) {
    this.encoder = new EventEncoder({ accept: request.headers.accept ?? "" })
  }

  /** The text of the newest message. */
  get text(): string {
    const content = this.input.messages.at(-1)?.content
    return typeof content === "string" ? content : ""
  }

  begin(): void {
    this.response.writeHead(200, { "content-type": this.encoder.getContentType(), "cache-control": "no-cache" })
    this.event("RUN_STARTED", { threadId: this.input.threadId, runId: this.input.runId })
  }

  event(type: keyof typeof EventType, members: object = {}): void {
    this.response.write(this.encoder.encode({ type: EventType[type], ...members } as BaseEvent))
  }

  say(text: string, messageId = crypto.randomUUID()): void {
    this.event("TEXT_MESSAGE_START", { messageId, role: "assistant" })
    for (const delta of text.match(/.{1,4}/gsu) ?? []) this.event("TEXT_MESSAGE_CONTENT", { messageId, delta })
    this.event("TEXT_MESSAGE_END", { messageId })
  }

  finish(members: object = {}): void {
    this.event("RUN_FINISHED", { threadId: this.input.threadId, runId: this.input.runId, ...members })
    this.response.end()
  }
}

/** What an agent does with a request. */
export type Script = (run: Run) => void | Promise<void>

const read = async (request: IncomingMessage): Promise<RunAgentInput> => {
  const pieces: Array<Buffer> = []
  for await (const piece of request) pieces.push(piece)
  return RunAgentInputSchema.parse(JSON.parse(Buffer.concat(pieces).toString("utf8"))) as RunAgentInput
}

/** An agent until the scope ends. */
export const make = (script: Script) =>
  Effect.gen(function* () {
    const runs: Array<Run> = []
    const changes = new Changes()
    const server = createServer((request, response) => {
      if (request.url === "/health") return void response.end("{}")
      read(request).then(
        async input => {
          const run = new Run(input, request, response)
          response.on("close", () => {
            run.isClosed = true
            changes.notify()
          })
          runs.push(run)
          changes.notify()
          await script(run)
        },
        (error: unknown) => {
          response.writeHead(422, { "content-type": "application/json" }).end(JSON.stringify({ error: String(error) }))
        }
      )
    })
    yield* Effect.acquireRelease(
      Effect.async<void>(resume => {
        server.listen(0, "127.0.0.1", () => resume(Effect.void))
      }),
      () =>
        Effect.sync(() => {
          server.close()
          server.closeAllConnections()
        })
    )
    const { port } = server.address() as AddressInfo
    return {
      url: `http://127.0.0.1:${port}/agent`,
      base: `http://127.0.0.1:${port}`,
      runs,
      until: <A>(look: () => A | undefined) => changes.until(() => Option.fromNullable(look()))
    }
  })

/** Messages as lines. */
export const lines = (messages: ReadonlyArray<Message>): ReadonlyArray<string> =>
  messages.map(message => {
    const calls = message.role === "assistant" ? (message.toolCalls ?? []) : []
    const shown = calls.map(({ function: call }) => `${call.name}(${call.arguments})`)
    const content = typeof message.content === "string" ? message.content : ""
    return `${message.role}: ${[...shown, content].join("")}`
  })
