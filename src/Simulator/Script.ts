/**
 * The simulated agent's actions in a turn. A message that starts with a command selects a behavior; others are echoed.
 */
import { Deferred, type Duration, Effect, Option } from "effect"
import { Agent, otherTurns, showcase } from "./Agent.ts"
import { isCloseCode } from "./Fault.ts"
import type { Frame, Instance } from "./Instance.ts"

/** The commands with which a message may start, as listed by `/help`. */
export const commands: Readonly<Record<string, string>> = {
  "/all": "every type of event, with those of an instance that stops at the end",
  "/ask": "asks a question and echoes the answer",
  "/approve": "asks for an approval",
  "/fail [message]": "the turn fails",
  "/long <count>": "an answer of that many deltas, up to 100000",
  "/hang": "starts and does not end until it is interrupted",
  "/unknown": "events of unknown types, with text and without",
  "/malformed": "known types with wrong fields, and frames that are not events",
  "/write <path> <content>": "writes a file",
  "/delete <path>": "deletes a file",
  "/rename <from> <to>": "renames a file",
  "/drop [code]": "loses the connection halfway through the answer",
  "/crash [reason]": "the instance fails halfway through the answer and ends",
  "/help": "lists the commands"
}

const maxDeltas = 100_000
/** Deltas of an echo; those of a long text are longer. */
const maxEchoDeltas = 200

/** A text split into words with the space after them, joined to at most `max` parts. */
export const words = (text: string, max = maxEchoDeltas): ReadonlyArray<string> => {
  const all = text.match(/\s*\S+\s*?(?=\s|$)|\s+/gu) ?? []
  const together = Math.max(1, Math.ceil(all.length / max))
  return Array.from({ length: Math.ceil(all.length / together) }, (_, i) =>
    all.slice(i * together, (i + 1) * together).join("")
  )
}

/** A message of the agent, as its start, its deltas and its end. */
const say = ({ emit, turnId }: Agent, deltas: Iterable<string>) =>
  Effect.gen(function* () {
    const messageId = `${turnId}-message-1`
    yield* emit("message.start", { turnId, messageId, role: "assistant" })
    let content = ""
    for (const delta of deltas) {
      content += delta
      yield* emit("message.delta", { turnId, messageId, delta })
    }
    yield* emit("message.complete", { turnId, messageId, content })
  })

const startMessage = ({ emit, turnId }: Agent) =>
  emit("message.start", { turnId, messageId: `${turnId}-message-1`, role: "assistant" })

/** A token counts as four characters, and the context holds 200 000. */
const usage = ({ content, emit, number, turnId }: Agent) => {
  const inputTokens = Math.ceil(content.length / 4) + 100
  const outputTokens = Math.ceil(content.length / 4)
  const used = Math.min(200_000, number * (inputTokens + outputTokens))
  return emit("usage", { turnId, inputTokens, outputTokens, used, limit: 200_000 })
}

const ordinary = (agent: Agent) =>
  Effect.gen(function* () {
    const { content, emit, number, turnId } = agent
    const thinking = { turnId, thinkingId: `${turnId}-thinking-1` }
    yield* emit("thinking.start", thinking)
    for (const delta of ["What was said ", "can be echoed."]) yield* emit("thinking.delta", { ...thinking, delta })
    yield* emit("thinking.complete", { ...thinking, content: "What was said can be echoed." })
    const call = { turnId, toolCallId: `${turnId}-tool-1` }
    const path = "notes/last-message.md"
    yield* emit("tool.call.start", { ...call, name: "write_file" })
    yield* emit("tool.call.delta", { ...call, delta: JSON.stringify({ path }) })
    yield* emit("tool.call", { ...call, name: "write_file", input: { path } })
    yield* agent.write(path, `# Message ${number}\n\n${content}\n`)
    yield* emit("tool.result", { ...call, output: `wrote ${path}` })
    yield* say(agent, words(`echo: ${content}`))
  })

const ask = (agent: Agent) =>
  Effect.gen(function* () {
    const { emit, turnId } = agent
    const requestId = `${turnId}-question-1`
    const question = { type: "question.asked", turnId, requestId, question: "Which color?", options: ["red", "blue"] }
    const answer = yield* agent.ask(requestId, question)
    yield* emit("question.answered", { turnId, requestId, answer })
    yield* say(agent, words(`answer: ${typeof answer === "string" ? answer : JSON.stringify(answer)}`))
  })

const isApproval = (answer: unknown): boolean =>
  answer === true ||
  (typeof answer === "string" && ["approve", "approved", "yes", "allow", "true"].includes(answer.toLowerCase())) ||
  (typeof answer === "object" && answer !== null && "approved" in answer && answer.approved === true)

const approve = (agent: Agent) =>
  Effect.gen(function* () {
    const { emit, turnId } = agent
    const requestId = `${turnId}-approval-1`
    const request = { type: "approval.requested", turnId, requestId, action: "run_command", description: "rm -r build" }
    const approved = isApproval(yield* agent.ask(requestId, request))
    yield* emit("approval.resolved", { turnId, requestId, approved })
    yield* say(agent, [approved ? "approved" : "denied"])
  })

const long = function* (count: number): Generator<string> {
  for (let i = 1; i <= count; i++) yield `${i} `
}

const unknown = ({ emit, turnId }: Agent) =>
  Effect.gen(function* () {
    yield* emit("poem.recited", { turnId, content: "text in content " })
    yield* emit("poem.recited", { turnId, text: "text in text " })
    yield* emit("poem.recited", { turnId, delta: "text in delta" })
    yield* emit("silence.kept", { turnId, seconds: 4 })
  })

const malformed = ({ emit, frame, turnId }: Agent) =>
  Effect.gen(function* () {
    yield* emit("message.delta", { turnId, messageId: 7, delta: ["not", "text"] })
    yield* emit("tool.call", { turnId })
    yield* emit("usage", { turnId, inputTokens: "many", used: -1, limit: 0 })
    yield* emit("file.modified", { turnId, path: null })
    for (const each of malformedFrames) yield* frame(each)
  })

/** Frames that are not events: not JSON, not an object, without a type, not text. */
export const malformedFrames: ReadonlyArray<Frame> = [
  "{not json",
  "[]",
  "null",
  '{"content":"no type"}',
  '{"type":5}',
  Buffer.from([0xff, 0x00, 0xfe])
]

const dropped = (agent: Agent, code: number | undefined) =>
  Effect.gen(function* () {
    const { emit, turnId } = agent
    const message = { turnId, messageId: `${turnId}-message-1` }
    yield* startMessage(agent)
    yield* emit("message.delta", { ...message, delta: "before " })
    yield* agent.disconnect(code)
    yield* emit("message.delta", { ...message, delta: "after" })
    yield* emit("message.complete", { ...message, content: "before after" })
  })

/** The actions of a command, whose arguments are words. */
type Action = (agent: Agent, first: string, ...rest: ReadonlyArray<string>) => Effect.Effect<void>

/** The actions of each command after the start of its turn. */
const actions = new Map<string | undefined, Action>([
  ["/all", showcase],
  ["/ask", ask],
  ["/approve", approve],
  [
    "/fail",
    ({ emit, turnId }, ...words) => {
      const message = words.join(" ").trim() || "failed as asked"
      return emit("turn.failed", { turnId, code: "simulated", message, retryable: false })
    }
  ],
  ["/long", (agent, count) => say(agent, long(Math.min(maxDeltas, Math.max(0, Number.parseInt(count, 10) || 0))))],
  ["/hang", agent => Effect.zipRight(startMessage(agent), Effect.never)],
  ["/unknown", unknown],
  ["/malformed", malformed],
  ["/write", (agent, path, ...content) => agent.write(path, content.join(" "))],
  ["/delete", (agent, path) => agent.delete(path)],
  ["/rename", (agent, from, to = "") => agent.rename(from, to)],
  ["/drop", (agent, code) => dropped(agent, isCloseCode(Number(code)) ? Number(code) : undefined)],
  [
    "/crash",
    (agent, ...words) =>
      Effect.zipRight(startMessage(agent), agent.finish("crashed", words.join(" ").trim() || "crashed as asked"))
  ],
  [
    "/help",
    agent =>
      say(
        agent,
        Object.entries(commands).map(([name, meaning]) => `${name}: ${meaning}\n`)
      )
  ]
])

/** The agent's actions after the start of the turn of a message. */
const respond = (agent: Agent): Effect.Effect<void> => {
  const [command, first = "", ...rest] = agent.content.trim().split(/\s+/u)
  return (actions.get(command) ?? ordinary)(agent, first, ...rest)
}

/** Runs a turn, which ends exactly once, unless it crashes or hangs. */
const play = (agent: Agent) =>
  Effect.gen(function* () {
    const { content, emit, instanceId, turnId } = agent
    const command = /^\s*(\S*)/u.exec(content)?.[1]
    if (command === "/all") yield* otherTurns(agent)
    yield* emit("turn.started", { turnId })
    yield* respond(agent)
    if (command === "/fail" || command === "/crash") return
    yield* usage(agent)
    yield* emit("turn.completed", { turnId })
    if (command !== "/all") return
    yield* emit("instance.failed", { instanceId, code: "out_of_memory", message: "The instance ran out of memory" })
    yield* agent.finish("stopped", "instance failed")
  })

/** Runs an instance's turns one after another, until it ends. */
export const run = (instance: Instance, pace: Duration.Duration): Effect.Effect<void> =>
  Effect.gen(function* () {
    for (;;) {
      const turn = yield* instance.changes.until(() => Option.fromNullable(instance.waiting.shift()))
      if (!instance.isLive(turn)) continue
      yield* Effect.raceFirst(play(new Agent(instance, turn, pace)), Deferred.await(turn.interrupted))
      instance.cancel(turn)
    }
  }).pipe(
    Effect.raceFirst(Effect.asVoid(instance.ended)),
    Effect.catchAllDefect(defect =>
      Effect.zipRight(
        Effect.logError("The simulated agent failed", defect),
        Effect.sync(() => instance.finish("crashed", "The simulator failed"))
      )
    )
  )
