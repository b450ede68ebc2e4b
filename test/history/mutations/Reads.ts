/** Violations of reads, of lists, of refusals and of expiry. */
import * as H from "../History.ts"
import type { State } from "../Log.ts"
import { isList } from "../Operations.ts"
import {
  address,
  batches,
  beforeEvent,
  entryOf,
  fold,
  MutableHistory,
  type Mutation,
  mutation,
  ofForm,
  past,
  present,
  records,
  withEvent,
  withOperation,
  withResult,
  withWrite,
  writes
} from "./MutableHistory.ts"

/** A read of a state's key, at the end or elsewhere. */
const withGet = (
  subject: MutableHistory,
  state: State,
  result: H.GetResult = { entry: entryOf(state) },
  where?: Parameters<typeof withOperation>[3]
) => withOperation(subject, { type: "get", ...address(state) }, { result }, where)

const deletion = (state: State, ifVersion?: number): H.WriteAction => ({
  ...{ type: "write", by: "delete", actor: "mutant" },
  operations: [{ op: "delete", ...address(state), ...(ifVersion === undefined ? {} : { ifVersion }) }]
})

/** States of a batch, each with what another key of the batch was before it. */
const batchesWithOld = (subject: MutableHistory) =>
  subject.written.flatMap(state =>
    state.commit.made.flatMap(({ change }) => {
      const old = subject.log.stateAt(H.addressOf(change), state.position - 1)
      const isOther = old !== undefined && H.addressOf(old.change) !== H.addressOf(state.change)
      return isOther && old.change.op === "set" && old.expires === undefined ? [{ state, old }] : []
    })
  )

/** States that a batch itself has replaced. */
const hidden = ({ log }: MutableHistory): ReadonlyArray<State> =>
  log.commits.flatMap(commit =>
    commit.made.flatMap(({ change }) => {
      const position = commit.index + 1
      const isShown = log.stateAt(H.addressOf(change), position)?.change === change
      return !isShown && change.op === "set" ? [{ position, change, commit, expires: undefined }] : []
    })
  )

/** States whose time of expiry is known. */
const expiring = ({ log }: MutableHistory) =>
  log.commits
    .flatMap(({ made }) => made.flatMap(({ change }) => log.statesOf(H.addressOf(change))))
    .filter(({ expires }) => expires !== undefined && expires.min === expires.max)

const written = (subject: MutableHistory) => subject.written

const ofReads: ReadonlyArray<Mutation> = [
  mutation("read", "an entry is read that an acknowledged write had replaced", past, (subject, state) =>
    withGet(subject, state)
  ),
  mutation("read", "an entry is not found", present, (subject, state) => withGet(subject, state, { entry: null })),
  mutation("read", "an entry is said not to be modified that has been", past, (subject, state) => {
    const notModified = state.change.version
    const action = { type: "get", ...address(state), ifNoneMatch: notModified } as const
    return withOperation(subject, action, { result: { notModified } })
  }),
  mutation("read", "an entry is read before it is written", written, (subject, state) =>
    withGet(subject, state, undefined, beforeEvent(subject, subject.since))
  ),
  mutation("read", "a precondition fails that holds", present, (subject, state) => {
    const { version } = state.change
    return withOperation(subject, deletion(state, version), { refused: { currentVersion: version } })
  }),
  mutation("read", "a refused write is answered with a version that had been replaced", past, (subject, state) =>
    withOperation(subject, deletion(state, 1_000_000), { refused: { currentVersion: state.change.version } })
  ),
  mutation("read", "a delete finds nothing although an entry is present", present, (subject, state) =>
    withOperation(subject, deletion(state), { result: { results: [{ deleted: false }] } })
  ),
  mutation("read", "a batch is seen in part by two reads, one after the other", batchesWithOld, (subject, one) => {
    const { old, state } = one
    const before = subject.history.events.findIndex(({ time }) => time === state.commit.write!.end)
    if (before === -1) return undefined
    const where = beforeEvent(subject, before)
    // The second one is inserted first, as it comes before the same event.
    const second = withGet(subject, old, undefined, where)
    const both = withGet(new MutableHistory(second.history, subject.pick), state, undefined, where)
    return { history: both.history, names: second.names }
  }),
  mutation("batch", "a state is read that a batch has only in between", hidden, (subject, state) =>
    withGet(subject, state)
  ),
  mutation("expiry", "an entry is read after its time", expiring, (subject, state) => {
    const { history, since } = subject
    const before = history.events.findIndex(({ wall }, index) => index >= since && wall > state.expires!.max)
    return before === -1 ? undefined : withGet(subject, state, undefined, beforeEvent(subject, before))
  }),
  mutation("expiry", "an entry expires before its time", records, (subject, { actor, seq }) => {
    const { log } = subject
    if (actor !== "expiry") return undefined
    const set = log.stateAt(H.addressOf(log.records[seq - 1]!), log.positionOf(seq) - 1)!
    const write = log.commits[set.position - 1]!.write
    if (write === undefined || (write.outcome.type === "ok" && write.outcome.result.entry !== undefined)) {
      return undefined
    }
    return withWrite(subject, write.id, ({ operations }) => ({
      operations: operations.map(one => (one.op === "set" ? { ...one, ttlMs: 1_000_000 } : one))
    }))
  })
]

/** A read, at the end, of the states that several keys had at one time. */
const withRead = (
  subject: MutableHistory,
  states: ReadonlyArray<State>,
  entries: ReadonlyArray<H.Entry | null>,
  lastSeq = subject.log.end
) =>
  withOperation(
    subject,
    { type: "read", addresses: states.map(address) },
    { result: { entries, lastSeq, epoch: subject.epoch } }
  )

/** A state that is past, and one of another key that is present. */
const ofTwoMoments = ({ past, present }: MutableHistory) =>
  past.flatMap(old =>
    present.flatMap(state => (H.addressOf(state.change) === H.addressOf(old.change) ? [] : [{ old, state }]))
  )

const ofReadMany: ReadonlyArray<Mutation> = [
  mutation("read", "a read of several entries shows them of two moments", ofTwoMoments, (subject, { old, state }) =>
    withRead(subject, [state, old], [entryOf(state), entryOf(old)])
  ),
  mutation("read", "a read of several entries is without one", present, (subject, state) =>
    withRead(subject, [state], [null])
  ),
  mutation("read", "a read of several entries is older than a write that was acknowledged", past, (subject, state) =>
    withRead(subject, [state], [entryOf(state)], state.commit.last)
  ),
  ofForm("read", "a read of several entries has an entry of another key", present, (subject, state) =>
    withRead(subject, [state], [{ ...entryOf(state), key: `${state.change.key}~` }])
  ),
  mutation("batch", "a read of several entries has a part of a batch", batches, (subject, { first }) =>
    withRead(subject, [], [], first)
  )
]

const listed = (least: number) => (subject: MutableHistory) =>
  subject.ops
    .filter(isList)
    .filter(op => subject.hasEpoch(op))
    .flatMap(op =>
      op.outcome.type === "ok" && op.outcome.result.items.length >= least
        ? [{ op, result: op.outcome.result, last: op.outcome.result.items.at(-1)! }]
        : []
    )

type Listed = ReturnType<ReturnType<typeof listed>>[number]

const withItems = (subject: MutableHistory, { op, result }: Listed, items: ReadonlyArray<H.Entry>) =>
  withResult(subject, op.id, { ...result, items })

const reverse = (subject: MutableHistory, list: Listed) => withItems(subject, list, list.result.items.toReversed())

const withSelection = (subject: MutableHistory, { op }: Listed, fields: Partial<H.ListAction>) =>
  withEvent(subject, op.id, event =>
    event.type === "invoke" ? { ...event, action: { ...op.action, ...fields } } : event
  )

/** A list, at the end, of a namespace at an earlier time. */
const withOldList = (subject: MutableHistory, items: ReadonlyArray<H.Entry>, lastSeq: number) => {
  const result = { items, lastSeq, more: false, epoch: subject.epoch }
  return withOperation(subject, { type: "list", namespace: "plain", prefix: "" }, { result })
}

const ofLists: ReadonlyArray<Mutation> = [
  mutation("list", "a list is without an entry", listed(2), (subject, list) => {
    const { items } = list.result
    const index = subject.pick(items.length - 1)
    return items[index]!.expiresAt === null ? withItems(subject, list, items.toSpliced(index, 1)) : undefined
  }),
  mutation("list", "a list has an entry of another version", listed(1), (subject, list) => {
    const { items } = list.result
    const index = subject.pick(items.length)
    return withItems(subject, list, items.with(index, { ...items[index]!, version: items[index]!.version + 1 }))
  }),
  mutation("list", "a list has an absent entry", listed(1), (subject, list) =>
    withItems(subject, list, [...list.result.items, { ...list.last, key: `${list.last.key}~` }])
  ),
  ofForm("list", "a list is out of order", listed(2), reverse),
  ofForm(
    "list",
    "a list in reverse is not",
    subject => listed(2)(subject).filter(({ op }) => op.action.reverse),
    reverse
  ),
  ofForm("list", "a list has the key at which it ends", listed(1), (subject, list) =>
    withSelection(subject, list, { end: list.result.items[subject.pick(list.result.items.length)]!.key })
  ),
  ofForm("list", "a list has a key before its start", listed(1), (subject, list) =>
    withSelection(subject, list, { start: `${list.result.items[subject.pick(list.result.items.length)]!.key}!` })
  ),
  mutation("list", "a list counts an entry too many or too few", listed(0), (subject, { op, result }) => {
    const { count = 0, lastSeq } = result
    const states = fold(subject, op.action.namespace, lastSeq)
    if (!op.action.count || states.some(({ expires }) => expires !== undefined)) return undefined
    return withResult(subject, op.id, { ...result, count: subject.pick(2) === 0 ? count + 1 : count - 1 })
  }),
  mutation("list", "a page has no link to the next one", listed(1), (subject, { last, op, result }) => {
    const { end = "~", namespace, prefix, reverse, start = "" } = op.action
    const isLeft = fold(subject, namespace, result.lastSeq).some(({ change: { key }, expires }) => {
      const isLater = reverse ? key < last.key : key > last.key
      return isLater && key.startsWith(prefix) && key >= start && key < end && expires === undefined
    })
    return result.more && isLeft ? withResult(subject, op.id, { ...result, more: false }) : undefined
  }),
  mutation("batch", "a list has a part of a batch", batches, (subject, { first }) => withOldList(subject, [], first)),
  mutation("read", "a list is older than a write that was acknowledged", writes, (subject, { id }) => {
    const { first } = subject.log.commits.find(({ write }) => write?.id === id)!
    const states = fold(subject, "plain", first - 1)
    if (states.some(({ expires }) => expires !== undefined)) return undefined
    return withOldList(subject, states.map(entryOf), first - 1)
  })
]

export const ofAllReads = [...ofReads, ...ofReadMany, ...ofLists]
