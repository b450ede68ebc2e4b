/** What the simulated agent can do in a turn, and a turn with every type of event. */
import { Duration, Effect } from "effect"
import { yieldToEventLoop } from "../base/Time/EventLoop.ts"
import type { EventBody, Frame, Instance, Turn } from "./Instance.ts"

/** Events that are emitted before other fibers and sockets run. */
const burst = 32

/** What the simulated agent can do in a turn. Each action takes the given time, and waits for slow connections. */
export class Agent {
  readonly instanceId: string
  readonly turnId: string
  readonly content: string
  /** 1 for the first turn of an instance. */
  readonly number: number
  private count = 0

  constructor(
    private readonly instance: Instance,
    private readonly turn: Turn,
    private readonly pace: Duration.Duration
  ) {
    this.instanceId = instance.id
    this.turnId = turn.turnId
    this.content = turn.content
    this.number = turn.number
  }

  readonly emit = (type: string, fields: Readonly<Record<string, unknown>> = {}): Effect.Effect<void> =>
    this.run(() => this.instance.emit({ ...fields, type }))

  /** Sends a frame that is not an event. */
  readonly frame = (frame: Frame): Effect.Effect<void> => this.run(() => this.instance.emitFrame(frame))

  /** Changes the workspace, and emits the file event or an error. */
  write(path: string, content: string): Effect.Effect<void> {
    return this.run(() => {
      const { instance } = this
      const written = path === "" ? undefined : instance.workspace.write(path, content, instance.now())
      if (written === undefined) return this.emitFileEvent("", path, undefined)
      const { created, iteration, size, hash } = written
      return this.emitFileEvent(created ? "file.created" : "file.modified", path, { path, iteration, size, hash })
    })
  }

  delete(path: string): Effect.Effect<void> {
    return this.run(() =>
      this.emitFileEvent("file.deleted", path, this.instance.workspace.delete(path) ? { path } : undefined)
    )
  }

  rename(from: string, to: string): Effect.Effect<void> {
    return this.run(() => {
      const { instance } = this
      const renamed = to === "" ? undefined : instance.workspace.rename(from, to, instance.now())
      this.emitFileEvent("file.renamed", from, renamed && { from, path: to, ...renamed })
    })
  }

  /** Emits a question or a request for approval, and waits for the client's answer. */
  ask(requestId: string, event: EventBody): Effect.Effect<unknown> {
    return this.act(
      Effect.suspend(() => {
        const answer = this.instance.expect(this.turn, requestId)
        this.instance.emit(event)
        return answer
      })
    )
  }

  /** Closes the connections once all earlier events are sent. The turn continues. */
  disconnect(code: number | undefined): Effect.Effect<void> {
    return this.act(
      Effect.map(this.instance.awaitSent, () => {
        for (const connection of [...this.instance.connections]) connection.close(code)
      })
    )
  }

  /** Ends the instance, as if by a request or as a failure. */
  finish(end: "stopped" | "crashed", reason: string): Effect.Effect<void> {
    return this.run(() => this.instance.finish(end, reason))
  }

  private act<A>(action: Effect.Effect<A>): Effect.Effect<A> {
    return Effect.gen(this, function* () {
      const result = yield* action
      if (Duration.toMillis(this.pace) > 0) yield* Effect.sleep(this.pace)
      if (++this.count % burst === 0) yield* yieldToEventLoop
      yield* this.instance.awaitRoom
      return result
    })
  }

  private run(action: () => void): Effect.Effect<void> {
    return this.act(Effect.sync(action))
  }

  private emitFileEvent(type: string, path: string, fields: object | undefined): void {
    const { instance, turnId } = this
    if (fields !== undefined) return instance.emit({ type, turnId, ...fields })
    const message = `${JSON.stringify(path)} was not changed: there is no such file, or no room for it`
    instance.emit({ type: "error", turnId, code: "workspace", message, retryable: false })
  }
}

/** Turns that no message has started: one that fails and one that is canceled. */
export const otherTurns = ({ emit, turnId }: Agent): Effect.Effect<void> =>
  Effect.all(
    [
      emit("turn.started", { turnId: `${turnId}-failing` }),
      emit("turn.failed", {
        turnId: `${turnId}-failing`,
        code: "simulated",
        message: "failed as asked",
        retryable: true
      }),
      emit("turn.started", { turnId: `${turnId}-cancelled` }),
      emit("turn.cancelled", { turnId: `${turnId}-cancelled`, reason: "cancelled as asked" })
    ],
    { discard: true }
  )

const talk = ({ emit, turnId }: Agent) => {
  const thinking = { turnId, thinkingId: `${turnId}-thinking-1` }
  const message = { turnId, messageId: `${turnId}-message-1` }
  return [
    emit("thinking.start", thinking),
    emit("thinking.delta", { ...thinking, delta: "One of " }),
    emit("thinking.delta", { ...thinking, delta: "each." }),
    emit("thinking.complete", { ...thinking, content: "One of each." }),
    emit("message.start", { ...message, role: "assistant" }),
    emit("message.delta", { ...message, delta: "Here is " }),
    emit("message.delta", { ...message, delta: "everything." }),
    emit("message.complete", { ...message, content: "Here is everything." })
  ]
}

const tools = ({ emit, turnId }: Agent) => {
  const good = { turnId, toolCallId: `${turnId}-tool-1` }
  const bad = { turnId, toolCallId: `${turnId}-tool-2` }
  return [
    emit("tool.call.start", { ...good, name: "search" }),
    emit("tool.call.delta", { ...good, delta: '{"query":' }),
    emit("tool.call.delta", { ...good, delta: '"tea"}' }),
    emit("tool.call", { ...good, name: "search", input: { query: "tea" } }),
    emit("tool.progress", { ...good, message: "half-way", progress: 0.5 }),
    emit("tool.result", { ...good, output: ["green", "black"] }),
    emit("tool.call", { ...bad, name: "search", input: { query: "" } }),
    emit("tool.error", { ...bad, message: "The query is empty" })
  ]
}

/** A question and an approval that the agent answers itself. */
const requests = ({ emit, turnId }: Agent) => {
  const question = { turnId, requestId: `${turnId}-question-1` }
  const approval = { turnId, requestId: `${turnId}-approval-1` }
  return [
    emit("question.asked", { ...question, question: "Tea or coffee?", options: ["tea", "coffee"] }),
    emit("question.answered", { ...question, answer: "tea" }),
    emit("approval.requested", { ...approval, action: "run_command", description: "boil water" }),
    emit("approval.resolved", { ...approval, approved: true })
  ]
}

const work = (agent: Agent) => {
  const { emit, turnId } = agent
  const terminal = { turnId, terminalId: `${turnId}-terminal-1` }
  const step = { turnId, stepId: `${turnId}-step-1`, title: "Boil water" }
  const subagent = { turnId, subagentId: `${turnId}-subagent-1`, agentType: "taster" }
  const path = `showcase/${turnId}.txt`
  return [
    emit("plan.updated", { turnId, plan: [{ id: step.stepId, title: step.title, status: "pending" }] }),
    emit("step.started", step),
    emit("terminal.opened", { ...terminal, command: "kettle --on", cwd: "/workspace" }),
    emit("terminal.output", { ...terminal, stream: "stdout", data: "bubbling\n" }),
    emit("terminal.exited", { ...terminal, exitCode: 0 }),
    agent.write(path, "water\n"),
    agent.write(path, "tea\n"),
    agent.rename(path, `${path}.old`),
    agent.delete(`${path}.old`),
    emit("subagent.started", subagent),
    emit("subagent.completed", { ...subagent, result: "hot" }),
    emit("step.completed", { ...step, status: "done" }),
    emit("artifact.created", {
      turnId,
      artifactId: `${turnId}-artifact-1`,
      name: "recipe.md",
      mimeType: "text/markdown",
      uri: "workspace:recipe.md"
    }),
    emit("checkpoint.created", { turnId, checkpointId: `${turnId}-checkpoint-1`, label: "after tea" })
  ]
}

const state = ({ emit, turnId }: Agent) => [
  emit("state.snapshot", { turnId, state: { cups: 1 } }),
  emit("state.delta", { turnId, patch: [{ op: "replace", path: "/cups", value: 2 }] }),
  emit("rate_limited", { turnId, message: "The model is rate limited", retryAfterMs: 1000 }),
  emit("error", { turnId, code: "tea_cold", message: "The tea is cold", retryable: true }),
  emit("log", { turnId, level: "info", message: "one of each" }),
  emit("heartbeat")
]

/** Every type of event of a turn, except for its start, usage and end. */
export const showcase = (agent: Agent): Effect.Effect<void> =>
  Effect.all(
    [talk, tools, requests, work, state].flatMap(part => part(agent)),
    { discard: true }
  )
