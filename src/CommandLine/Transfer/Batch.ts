/** `causeway batch`: operations that are applied atomically. */
import { Effect, Either, Option } from "effect"
import * as ExactJson from "../../base/Json/ExactJson.ts"
import type { Operation } from "../../Client/Model.ts"
import { type CommandFailed, wrong } from "../CommandFailed.ts"
import { actor } from "../CommandOptions.ts"
import * as Connection from "../Connection.ts"
import { Args, Command } from "../Library.ts"
import { writeOnce, writeOptions } from "../Service.ts"
import { contentOf } from "../Terminal/Input.ts"
import { answer, Output, table } from "../Terminal/Output.ts"

/** The operations of a text, and their actor. */
export interface Batch {
  readonly operations: ReadonlyArray<Operation>
  readonly actor?: string
}

const hint = 'It is {"operations": […]}, a list of operations, or an operation a line.'

const refuse = (problem: string) => Either.left(wrong(`The operations are invalid: ${problem}`, hint))

const isOperation = (operation: unknown): operation is Operation => typeof operation === "object" && operation !== null

type Parsed = Either.Either<Batch, CommandFailed>

const ofObject = (body: Readonly<Record<string, unknown>>): Parsed => {
  const { actor, operations = "op" in body ? [body] : undefined } = body
  if (!Array.isArray(operations) || !operations.every(isOperation)) return refuse("there is no list of operations")
  if (actor !== undefined && typeof actor !== "string") return refuse("actor is not text")
  return Either.right({ operations, ...(actor !== undefined && { actor }) })
}

const ofMembers = (text: string): Parsed => {
  const read = ExactJson.readMembers(text)
  return "problem" in read ? refuse(read.problem) : ofObject(read.members)
}

const ofList = (text: string): Parsed => {
  try {
    // The text is wrapped below: it must be one list by itself, and positions in errors must be those of the text.
    JSON.parse(text)
  } catch (error) {
    return refuse(String(error))
  }
  return ofMembers(`{"operations":${text}}`)
}

/** An operation a line. Each line is parsed by itself, so that a line break within a value does not split it. */
const ofLines = (text: string): Parsed => {
  const operations: Array<Operation> = []
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    if (line.trim() === "") continue
    const read = ExactJson.readMembers(line)
    if ("problem" in read) return refuse(`line ${index + 1}: ${read.problem}`)
    if (!isOperation(read.members) || !("op" in read.members)) return refuse(`line ${index + 1} is no operation`)
    operations.push(read.members)
  }
  return Either.right({ operations })
}

/** Reads the body of a batch, a list of operations, or an operation a line. The service validates the operations. */
export const parse = (text: string): Parsed => {
  const trimmed = text.trim()
  if (trimmed.startsWith("[")) return ofList(trimmed)
  const whole = ExactJson.readMembers(trimmed)
  if ("members" in whole) return ofObject(whole.members)
  const [first = "", ...others] = trimmed.split(/\r?\n/)
  const isLines = others.length > 0 && "members" in ExactJson.readMembers(first)
  return isLines ? ofLines(text) : refuse(whole.problem)
}

/** `causeway batch [file]`. */
export const command = Command.make(
  "batch",
  {
    file: Args.text({ name: "file" }).pipe(
      Args.withDescription("Operations as JSON; - or nothing: standard input"),
      Args.optional
    ),
    actor,
    ...writeOptions,
    ...Connection.options
  },
  ({ actor, file, idempotencyKey, json, retryFor, ...given }) =>
    Effect.gen(function* () {
      const batch = yield* parse(yield* contentOf(Option.getOrElse(file, () => "-")))
      const { client, connection } = yield* Connection.openStore(given)
      const author = Option.getOrElse(actor, () => batch.actor)
      const results = yield* writeOnce(connection, { idempotencyKey, retryFor }, once =>
        client.batch(batch.operations, author === undefined ? once : { ...once, actor: author })
      )
      const { cells } = yield* Output
      const rows = results.map((result, index) => {
        const { key, namespace, op } = batch.operations[index] ?? { key: "", namespace: "", op: "" }
        const outcome = "version" in result ? `version ${result.version}` : result.deleted ? "deleted" : "was not there"
        return [op, namespace, key, outcome]
      })
      const columns = [
        { title: "OP" },
        { title: "NAMESPACE", shrinks: true },
        { title: "KEY", shrinks: true },
        { title: "RESULT" }
      ]
      return yield* answer(json, { ok: true, results }, () => table(columns, rows, cells()))
    })
).pipe(Command.withDescription("Apply operations atomically"))
