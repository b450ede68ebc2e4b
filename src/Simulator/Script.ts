/**
 * The simulated agent's actions in a turn. A message that begins with a command asks for a particular behavior; others
 * are echoed.
 */
import { type Action, emit, type Script, type TurnContext } from "./Action.ts"
import type { Frame } from "./EventHistory.ts"
import { isCloseCode } from "./Fault.ts"
import { otherTurns, showcase } from "./Showcase.ts"

/** The commands that a message may begin with, as `/help` lists them. */
export const commands: Readonly<Record<string, string>> = {
  "/all": "every type of event, in the end those of an instance that goes down, and does",
  "/ask": "asks a question and echoes the answer",
  "/approve": "asks for an approval",
  "/fail [message]": "the turn fails",
  "/long <count>": "an answer of so many deltas, 100000 at most",
  "/hang": "begins and never ends, until interrupted",
  "/unknown": "events of unknown types, with text and without",
  "/malformed": "known types with wrong fields, and frames that are no events",
  "/write <path> <content>": "writes a file",
  "/delete <path>": "deletes a file",
  "/rename <from> <to>": "renames a file",
  "/drop [code]": "loses the connection half-way through the answer",
  "/crash [reason]": "the instance fails half-way through the answer and is gone",
  "/help": "lists the commands"
}

const maxDeltas = 100_000
/** Deltas of an echo; those of a long text are longer. */
const maxEchoDeltas = 200

/** A text split into words with the space behind them, joined to at most `most` parts. */
export const words = (text: string, most = maxEchoDeltas): ReadonlyArray<string> => {
  const all = text.match(/\s*\S+\s*?(?=\s|$)|\s+/gu) ?? []
  const together = Math.max(1, Math.ceil(all.length / most))
  return Array.from({ length: Math.ceil(all.length / together) }, (_, i) =>
    all.slice(i * together, (i + 1) * together).join("")
  )
}

/** A message of the agent, as its start, its deltas and its end. */
const say = function* ({ turnId }: TurnContext, deltas: Iterable<string>, part = 1): Script {
  const messageId = `${turnId}-message-${part}`
  yield emit("message.start", { turnId, messageId, role: "assistant" })
  let content = ""
  for (const delta of deltas) {
    content += delta
    yield emit("message.delta", { turnId, messageId, delta })
  }
  yield emit("message.complete", { turnId, messageId, content })
}

/** A token counts as four characters, and the context holds 200 000. */
const usage = ({ turnId, content, number }: TurnContext): Action => {
  const inputTokens = Math.ceil(content.length / 4) + 100
  const outputTokens = Math.ceil(content.length / 4)
  const used = Math.min(200_000, number * (inputTokens + outputTokens))
  return emit("usage", { turnId, inputTokens, outputTokens, used, limit: 200_000 })
}

const ordinary = function* (turn: TurnContext): Script {
  const { turnId, content, number } = turn
  const thinkingId = `${turnId}-thinking-1`
  yield emit("thinking.start", { turnId, thinkingId })
  for (const delta of ["What was said ", "can be echoed."]) yield emit("thinking.delta", { turnId, thinkingId, delta })
  yield emit("thinking.complete", { turnId, thinkingId, content: "What was said can be echoed." })
  const toolCallId = `${turnId}-tool-1`
  const path = "notes/last-message.md"
  yield emit("tool.call.start", { turnId, toolCallId, name: "write_file" })
  yield emit("tool.call.delta", { turnId, toolCallId, delta: JSON.stringify({ path }) })
  yield emit("tool.call", { turnId, toolCallId, name: "write_file", input: { path } })
  yield { do: "write", path, content: `# Message ${number}\n\n${content}\n` }
  yield emit("tool.result", { turnId, toolCallId, output: `wrote ${path}` })
  yield* say(turn, words(`echo: ${content}`))
}

const ask = function* (turn: TurnContext): Script {
  const { turnId } = turn
  const requestId = `${turnId}-question-1`
  const question = { type: "question.asked", turnId, requestId, question: "Which colour?", options: ["red", "blue"] }
  const answer = yield { do: "ask", requestId, event: question }
  yield emit("question.answered", { turnId, requestId, answer })
  yield* say(turn, words(`answer: ${typeof answer === "string" ? answer : JSON.stringify(answer)}`))
}

const isApproval = (answer: unknown): boolean =>
  answer === true ||
  (typeof answer === "string" && ["approve", "approved", "yes", "allow", "true"].includes(answer.toLowerCase())) ||
  (typeof answer === "object" && answer !== null && "approved" in answer && answer.approved === true)

const approve = function* (turn: TurnContext): Script {
  const { turnId } = turn
  const requestId = `${turnId}-approval-1`
  const request = { type: "approval.requested", turnId, requestId, action: "run_command", description: "rm -r build" }
  const approved = isApproval(yield { do: "ask", requestId, event: request })
  yield emit("approval.resolved", { turnId, requestId, approved })
  yield* say(turn, [approved ? "approved" : "denied"])
}

const long = function* (count: number): Generator<string> {
  for (let i = 1; i <= count; i++) yield `${i} `
}

const unknown = function* (turn: TurnContext): Script {
  const { turnId } = turn
  yield emit("poem.recited", { turnId, content: "text in content " })
  yield emit("poem.recited", { turnId, text: "text in text " })
  yield emit("poem.recited", { turnId, delta: "text in delta" })
  yield emit("silence.kept", { turnId, seconds: 4 })
}

const malformed = function* ({ turnId }: TurnContext): Script {
  yield emit("message.delta", { turnId, messageId: 7, delta: ["not", "text"] })
  yield emit("tool.call", { turnId })
  yield emit("usage", { turnId, inputTokens: "many", used: -1, limit: 0 })
  yield emit("file.modified", { turnId, path: null })
  for (const frame of malformedFrames) yield { do: "frame", frame }
}

/** Frames that are no events: no JSON, no object, no type, no text. */
export const malformedFrames: ReadonlyArray<Frame> = [
  "{not json",
  "[]",
  "null",
  '{"content":"no type"}',
  '{"type":5}',
  Buffer.from([0xff, 0x00, 0xfe])
]

const dropped = function* (turn: TurnContext, code: number | undefined): Script {
  const { turnId } = turn
  const messageId = `${turnId}-message-1`
  yield emit("message.start", { turnId, messageId, role: "assistant" })
  yield emit("message.delta", { turnId, messageId, delta: "before " })
  yield { do: "disconnect", code }
  yield emit("message.delta", { turnId, messageId, delta: "after" })
  yield emit("message.complete", { turnId, messageId, content: "before after" })
}

/** The actions for a message. Its turn ends exactly once, unless it crashes or hangs. */
export const play = function* (turn: TurnContext): Script {
  const { turnId, content, instanceId } = turn
  const [command = "", first = "", ...rest] = content.trim().split(/\s+/u)
  const argument = [first, ...rest].join(" ").trim()
  if (command === "/all") yield* otherTurns(turnId)
  yield emit("turn.started", { turnId })
  switch (command) {
    case "/all":
      yield* showcase(turn)
      break
    case "/ask":
      yield* ask(turn)
      break
    case "/approve":
      yield* approve(turn)
      break
    case "/fail":
      yield emit("turn.failed", { turnId, code: "simulated", message: argument || "failed as asked", retryable: false })
      return
    case "/long":
      yield* say(turn, long(Math.min(maxDeltas, Math.max(0, Number.parseInt(first, 10) || 0))))
      break
    case "/hang":
      yield emit("message.start", { turnId, messageId: `${turnId}-message-1`, role: "assistant" })
      yield { do: "hang" }
      break
    case "/unknown":
      yield* unknown(turn)
      break
    case "/malformed":
      yield* malformed(turn)
      break
    case "/write":
      yield { do: "write", path: first, content: rest.join(" ") }
      break
    case "/delete":
      yield { do: "delete", path: first }
      break
    case "/rename":
      yield { do: "rename", from: first, to: rest[0] ?? "" }
      break
    case "/drop":
      yield* dropped(turn, isCloseCode(Number(first)) ? Number(first) : undefined)
      break
    case "/crash":
      yield emit("message.start", { turnId, messageId: `${turnId}-message-1`, role: "assistant" })
      yield { do: "crash", reason: argument || "crashed as asked" }
      return
    case "/help":
      yield* say(
        turn,
        Object.entries(commands).map(([name, meaning]) => `${name}: ${meaning}\n`)
      )
      break
    default:
      yield* ordinary(turn)
  }
  yield usage(turn)
  yield emit("turn.completed", { turnId })
  if (command === "/all") yield* goDown(instanceId)
}

/** An instance that fails and is stopped. */
const goDown = function* (instanceId: string): Script {
  yield emit("instance.failed", { instanceId, code: "out_of_memory", message: "The instance ran out of memory" })
  yield { do: "stop", reason: "instance failed" }
}
