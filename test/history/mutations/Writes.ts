/**
 * Violations of the log by itself, of writes, of deletes of a prefix, and of repetitions with an `Idempotency-Key`.
 */
import * as H from "../History.ts"
import {
  address,
  batches,
  keyed,
  MutableHistory,
  type Mutation,
  mutation,
  once,
  present,
  records,
  retimed,
  seenWith,
  withChanges,
  withEvent,
  withOperation,
  withPoll,
  withRecord,
  withResult,
  withSeen,
  withWrite,
  writes
} from "./MutableHistory.ts"

const idOf = ({ log }: MutableHistory, seq: number): number => log.commits[log.positionOf(seq) - 1]?.write?.id ?? -1

const ofLog: ReadonlyArray<Mutation> = [
  mutation("log", "a record is missing to all", records, (subject, { seq }) => {
    const history = withChanges(subject, changes => changes.filter(change => change.seq !== seq))
    return seq === subject.log.end ? undefined : { history, names: [`seq ${seq}`] }
  }),
  mutation("log", "time falls", records, (subject, { seq, timestamp }) => {
    const previous = subject.log.records[seq - 2]
    return previous && withRecord(subject, seq, { timestamp: Math.min(timestamp, previous.timestamp) - 1 })
  }),
  mutation("log", "a record is of no known actor", records, (subject, { seq }) =>
    withRecord(subject, seq, { actor: "nobody" }, "nobody")
  ),
  mutation("log", "a record has another value than was written", records, (subject, { op, seq }) =>
    op === "set" ? withRecord(subject, seq, { value: "mutant" }, idOf(subject, seq)) : undefined
  ),
  mutation("log", "a follower sees another record than the others", seenWith(1), (subject, seen) =>
    withSeen(subject, seen, { changes: seen.changes.with(0, { ...seen.changes[0]!, value: "mutant" }) })
  ),
  mutation("chain", "a version is skipped", records, (subject, { seq, version }) =>
    withRecord(subject, seq, { version: version + 1 })
  ),
  mutation("chain", "a precondition that names another version holds", writes, (subject, { action, id }) => {
    const [operation, ...others] = action.operations
    if (operation === undefined || others.length > 0) return undefined
    const position = subject.log.commits.find(({ write }) => write?.id === id)!.index
    const state = subject.log.stateAt(H.addressOf(operation), position)
    // One that may have expired may be taken for absent.
    if (state?.expires !== undefined) return undefined
    const ifVersion = state?.change.op === "set" ? subject.pick(state.change.version) : 1 + subject.pick(9)
    return withWrite(subject, id, () => ({ operations: [{ ...operation, ifVersion }] }))
  })
]

const put = { type: "write", by: "put", actor: "mutant" } as const
const set = { op: "set", namespace: "plain", key: "k", value: 1 } as const

/** Another result than that of an answer. */
const otherResult = ({ removed, results }: H.WriteResult): H.WriteResult => ({
  results: results.map(one => ("version" in one ? { version: one.version + 1 } : { deleted: !one.deleted })),
  ...(removed === undefined ? {} : { removed: { ...removed, count: removed.count + 1 } })
})

/** Commits of a batch whose last operation has made a record. */
const wholeBatches = (subject: MutableHistory) =>
  batches(subject).flatMap(({ made, write }) =>
    write?.action.prefixDelete === undefined && made.at(-1)!.operation === write?.action.operations.at(-1)
      ? [write!]
      : []
  )

const presentSingles = ({ present }: MutableHistory) =>
  present.filter(({ commit: { write } }) => write?.action.operations.length === 1 && write.tries.length === 1)

/** Two writes of different keys, each of one record and tried once, of which the first had ended before the second. */
const ordered = ({ log: { commits } }: MutableHistory) =>
  commits.flatMap((first, index) => {
    const second = commits[index + 1]
    const areSingle = first.made.length === 1 && second?.made.length === 1
    const isOther = areSingle && H.addressOf(first.made[0]!.change) !== H.addressOf(second.made[0]!.change)
    const isOnce = first.write?.tries.length === 1 && second?.write?.tries.length === 1
    const isOrdered = (first.write?.end ?? Number.POSITIVE_INFINITY) < (second?.write?.start ?? 0)
    return isOther && isOnce && isOrdered ? [{ first, second }] : []
  })

const ofWrites: ReadonlyArray<Mutation> = [
  mutation("outcome", "an acknowledged write is lost", once, subject =>
    withOperation(subject, { ...put, operations: [set] }, { result: { results: [{ version: 1 }] } })
  ),
  mutation("outcome", "the answer to a write has another result than the log", writes, (subject, { id, outcome }) =>
    outcome.type === "ok" ? withResult(subject, id, otherResult(outcome.result)) : undefined
  ),
  mutation("outcome", "a write that was refused is in the log", writes, (subject, { id }) =>
    withEvent(subject, id, event =>
      event.type === "ok" ? { type: "fail", id, reason: "mutant", time: event.time, wall: event.wall } : event
    )
  ),
  mutation("batch", "a part of a batch is missing", writes, (subject, { action, id }) =>
    action.prefixDelete === undefined
      ? withWrite(subject, id, ({ operations }) => ({ operations: [...operations, { ...set, key: "mutant" }] }))
      : undefined
  ),
  mutation("batch", "a write has records that it did not ask for", wholeBatches, (subject, { id }) =>
    withWrite(subject, id, ({ operations }) => ({ operations: operations.slice(0, -1) }))
  ),
  mutation("batch", "a write is applied twice", presentSingles, (subject, { change, commit }) => {
    const seq = subject.log.end + 1
    const again = { ...change, seq, version: change.version + 1 }
    if (seq - 1 === change.seq) return undefined
    return { ...withPoll(subject, seq - 1, [again], seq), names: [commit.write!.id] }
  }),
  mutation("order", "a write is seen before it is invoked", writes, (subject, { id }) => {
    const { events } = subject.history
    const isOwn = (event: H.Event) => (event.type === "invoke" || event.type === "ok") && event.id === id
    const others = events.slice(0, -1).filter(event => !isOwn(event))
    return { history: retimed(subject.history, [...others, ...events.filter(isOwn), events.at(-1)!]), names: [id] }
  }),
  mutation("order", "two writes stand in the log the wrong way round", ordered, (subject, { first, second }) => {
    const a = first.made[0]!.change
    const b = second.made[0]!.change
    const swapped = new Map([
      [a.seq, { ...b, seq: a.seq, timestamp: a.timestamp }],
      [b.seq, { ...a, seq: b.seq, timestamp: b.timestamp }]
    ])
    const history = withChanges(subject, changes => changes.map(change => swapped.get(change.seq) ?? change))
    return { history, names: [first.write!.id, second.write!.id] }
  })
]

const prefixDeletes = (subject: MutableHistory) => subject.prefixDeletes

/** Deletes of a prefix that have spared other keys of the namespace. */
const sparing = (subject: MutableHistory) =>
  subject.prefixDeletes.filter(({ commit: { made }, prefixDelete: { limit }, states }) => {
    const removed = new Set(made.map(({ change }) => change.key))
    return made.length < limit && states.some(one => !removed.has(one.change.key) && one.expires === undefined)
  })

const withPrefixDelete =
  (change: (asked: H.PrefixDelete, made: number) => Partial<H.PrefixDelete>) =>
  (subject: MutableHistory, { commit, prefixDelete, write }: MutableHistory["prefixDeletes"][number]) =>
    withWrite(subject, write.id, () => ({
      prefixDelete: { ...prefixDelete, ...change(prefixDelete, commit.made.length) }
    }))

const withRemoved =
  (change: (removed: { count: number; more: boolean }) => { count: number; more: boolean }) =>
  (subject: MutableHistory, { write: { id, outcome } }: MutableHistory["prefixDeletes"][number]) =>
    outcome.type === "ok" && outcome.result.removed !== undefined
      ? withResult(subject, id, { results: [], removed: change(outcome.result.removed) })
      : undefined

const ofPrefixDeletes: ReadonlyArray<Mutation> = [
  mutation(
    "batch",
    "a delete of a prefix leaves an entry",
    sparing,
    withPrefixDelete(() => ({ prefix: "" }))
  ),
  mutation(
    ...(["batch", "a delete of a prefix deletes an entry without it", prefixDeletes] as const),
    withPrefixDelete(({ prefix }) => ({ prefix: `${prefix}~` }))
  ),
  mutation(
    ...(["batch", "a delete of a prefix deletes more than its limit"] as const),
    subject => subject.prefixDeletes.filter(({ commit }) => commit.made.length > 1),
    withPrefixDelete((_, made) => ({ limit: made - 1 }))
  ),
  mutation(
    ...(["outcome", "a delete of a prefix is answered with another count", prefixDeletes] as const),
    withRemoved(({ count, more }) => ({ count: count - 1, more }))
  ),
  mutation(
    ...(["outcome", "a delete of a prefix is answered wrongly whether others are left", prefixDeletes] as const),
    withRemoved(({ count, more }) => ({ count, more: !more }))
  ),
  mutation("read", "a delete of a prefix finds nothing although an entry is present", present, (subject, state) => {
    const { key: prefix, namespace } = address(state)
    const prefixDelete = { namespace, prefix, limit: 10 }
    const action = { type: "write", by: "prefix", actor: "mutant", operations: [], prefixDelete } as const
    return withOperation(subject, action, { result: { results: [], removed: { count: 0, more: false } } })
  })
]

/** States that a keyed write of one operation has made, and that the log has not at its end. */
const keyedSingles = ({ keyed, log, present }: MutableHistory) => {
  const singles = new Set(keyed.filter(({ action }) => action.operations.length === 1))
  return present.filter(
    ({ change, commit: { write } }) => write !== undefined && singles.has(write) && change.seq !== log.end
  )
}

const ofRetries: ReadonlyArray<Mutation> = [
  mutation("retry", "the answer to a repetition is another one", keyed, (subject, { action, id, outcome }) => {
    if (outcome.type !== "ok") return undefined
    return { ...withOperation(subject, action, { result: otherResult(outcome.result) }), names: [id] }
  }),
  mutation("retry", "a repetition is refused by what the write itself has changed", keyed, (subject, { action }) =>
    withOperation(subject, action, { refused: {} })
  ),
  mutation("retry", "a repeated write is applied twice", keyedSingles, (subject, { change, commit }) => {
    const { action, id, outcome } = commit.write!
    if (outcome.type !== "ok") return undefined
    const { history } = withOperation(subject, action, { result: outcome.result })
    const seq = subject.log.end + 1
    const again = { ...change, seq, version: change.version + 1 }
    return { ...withPoll(new MutableHistory(history, subject.pick), seq - 1, [again], seq), names: [id] }
  }),
  mutation("outcome", "a write is lost although its repetition was acknowledged", once, subject => {
    const action: H.WriteAction = { ...put, operations: [set], idempotencyKey: "mutant" }
    const first = withOperation(subject, action, { refused: { currentVersion: null } })
    const repeated = new MutableHistory(first.history, subject.pick)
    return { ...withOperation(repeated, action, { result: { results: [{ version: 1 }] } }), names: first.names }
  })
]

export const ofLogAndWrites = [...ofLog, ...ofWrites, ...ofPrefixDeletes, ...ofRetries]
