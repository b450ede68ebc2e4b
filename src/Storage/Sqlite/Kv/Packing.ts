/**
 * Commits and their outcomes on their way between threads: to clone one text and one list of numbers takes a third of
 * the time that it takes to clone as many objects.
 */
import type { JsonText } from "../../../Json/JsonText.ts"
import type { Operation, OperationResult, Precondition, Write } from "../../../Kv/Write.ts"
import type { Outcome, Reply, Request } from "./Messages.ts"

type Commit = Extract<Request, { kind: "commit" }>
type Done = Extract<Reply, { _tag: "Done" }>

/** A group of writes in two pieces. */
interface PackedCommit {
  readonly kind: "commit"
  readonly now: number
  /** All actors, names and values, end to end. */
  readonly text: string
  /**
   * For each write the length of its actor and how many operations it has; for each of these the lengths of its
   * namespace, key and value, and when it expires. A delete has a value of length -1, and `NaN` stands for `null`.
   */
  readonly numbers: Float64Array
  /** By the operation's place in the group; few have one. */
  readonly preconditions: ReadonlyMap<number, Precondition>
}

/** What became of a group. */
interface PackedDone extends Omit<Done, "outcomes"> {
  readonly writes: number
  /**
   * For each write that was committed its timestamp, last `seq` and how many results it has; then these: the version
   * of a set, -1 for a delete, and 0 for a delete of what was absent.
   */
  readonly numbers: Float64Array
  /** By the write's place in the group: what became of those that were not committed. */
  readonly others: ReadonlyMap<number, Exclude<Outcome, { _tag: "Committed" }>>
}

/** A request as it is posted. */
export type PackedRequest = Request | PackedCommit

/** A reply as it is posted. */
export type PackedReply = Reply | PackedDone

/** A longer text is left in the pieces it is in: not far beyond, strings end. */
const longestText = 128 * 1024 * 1024

export const packRequest = (request: Request): PackedRequest =>
  request.kind === "commit" ? packCommit(request) : request

const packCommit = (commit: Commit): PackedRequest => {
  const texts: Array<string> = []
  const numbers: Array<number> = []
  const preconditions = new Map<number, Precondition>()
  let length = 0
  let place = 0
  // What a caller made against its type is left as it is, for the statements to refuse: lengths that are none would
  // mix up the texts of others.
  let isSound = true
  const add = (text: string): void => {
    if (typeof text !== "string") {
      isSound = false
      return
    }
    texts.push(text)
    numbers.push(text.length)
    length += text.length
  }
  for (const { actor, operations } of commit.writes) {
    add(actor)
    numbers.push(operations.length)
    for (const operation of operations) {
      add(operation.namespace)
      add(operation.key)
      if (operation.op === "set") {
        add(operation.value)
        isSound &&= operation.expiresAt === null || Number.isFinite(operation.expiresAt)
        numbers.push(operation.expiresAt ?? Number.NaN)
      } else numbers.push(-1, Number.NaN)
      if (operation.precondition !== undefined) preconditions.set(place, operation.precondition)
      place++
    }
  }
  if (!isSound || length > longestText) return commit
  return { kind: "commit", now: commit.now, text: texts.join(""), numbers: new Float64Array(numbers), preconditions }
}

export const unpackRequest = (request: PackedRequest): Request =>
  request.kind === "commit" && "text" in request ? unpackCommit(request) : request

const unpackCommit = ({ now, numbers, preconditions, text }: PackedCommit): Commit => {
  let at = 0
  let from = 0
  const number = (): number => numbers[at++]!
  const take = (length: number): string => {
    from += length
    return text.slice(from - length, from)
  }
  let place = 0
  const operation = (): Operation => {
    const namespace = take(number())
    const key = take(number())
    const length = number()
    const value = length === -1 ? undefined : (take(length) as JsonText)
    const expiry = number()
    const precondition = preconditions.get(place++)
    const condition = precondition === undefined ? undefined : { precondition }
    if (value === undefined) return { op: "delete", namespace, key, ...condition }
    return { op: "set", namespace, key, value, expiresAt: Number.isNaN(expiry) ? null : expiry, ...condition }
  }
  const writes: Array<Write> = []
  while (at < numbers.length) {
    const actor = take(number())
    const operations: Array<Operation> = []
    for (let left = number(); left > 0; left--) operations.push(operation())
    writes.push({ operations, actor })
  }
  return { kind: "commit", now, writes }
}

export const packReply = (reply: Reply): PackedReply => {
  if (reply._tag === "Away") return reply
  const { outcomes, ...rest } = reply
  const numbers: Array<number> = []
  const others = new Map<number, Exclude<Outcome, { _tag: "Committed" }>>()
  for (const [index, outcome] of outcomes.entries()) {
    if (outcome._tag !== "Committed") {
      others.set(index, outcome)
      continue
    }
    const { lastSeq, results, timestamp } = outcome.committed
    numbers.push(timestamp, lastSeq, results.length)
    for (const result of results) numbers.push(result.op === "set" ? result.version : result.deleted ? -1 : 0)
  }
  // What is spread comes last: a literal that adds to it leaves a hidden class behind in V8's old space each time.
  return { writes: outcomes.length, numbers: new Float64Array(numbers), others, ...rest }
}

export const unpackReply = (reply: PackedReply): Reply => {
  if (!("numbers" in reply)) return reply
  const { numbers, others, writes, ...rest } = reply
  const outcomes: Array<Outcome> = []
  let at = 0
  const number = (): number => numbers[at++]!
  for (let index = 0; index < writes; index++) {
    const other = others.get(index)
    if (other !== undefined) {
      outcomes.push(other)
      continue
    }
    const timestamp = number()
    const lastSeq = number()
    const results: Array<OperationResult> = []
    for (let left = number(); left > 0; left--) {
      const result = number()
      results.push(result > 0 ? { op: "set", version: result } : { op: "delete", deleted: result === -1 })
    }
    outcomes.push({ _tag: "Committed", committed: { results, timestamp, lastSeq } })
  }
  return { outcomes, ...rest }
}
