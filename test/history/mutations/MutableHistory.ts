/** What mutations of histories are made of. */
import * as H from "../History.ts"
import { joined, Log, noEpoch, type State } from "../Log.ts"
import { isEffective, isWrite, type Op, operations, type Rule, type Write } from "../Operations.ts"
import { type Epoch, epochOf, epochs } from "../rules/Epochs.ts"

/** An invalid history. */
export interface Mutated {
  readonly history: H.History
  /** One of these operations or texts must be named. */
  readonly names: ReadonlyArray<number | string>
}

export type Which = "first" | "last"

/** A history to mutate, and what the checker knows of one of its epochs. */
export class MutableHistory {
  readonly ops: ReadonlyArray<Op>
  readonly log: Log
  readonly epochs: ReadonlyArray<Epoch>
  readonly epoch: string
  /** The index of the first event that is certainly of this epoch, if that is the last one. */
  readonly since: number

  /** @param pick a whole number below its argument, at random */
  constructor(
    readonly history: H.History,
    readonly pick: (below: number) => number,
    which: Which = "last"
  ) {
    this.ops = operations(history)
    this.epochs = epochs(history, this.ops)
    const { begun, name } = this.epochs.at(which === "first" ? 0 : -1)!
    this.epoch = name
    this.since = this.epochs.length === 1 ? 0 : history.events.findIndex(({ time }) => time > begun)
    this.log = this.logOf(name)
  }

  /** What the checker knows of the log of an epoch. */
  logOf(epoch: string): Log {
    const writes = new Map(this.ops.filter(isWrite).map(op => [op.action.actor, op]))
    const records = joined(this.history, this.ops).get(epoch)?.records ?? []
    return new Log(records, writes, this.history.header.clockError)
  }

  /** Whether an operation is certainly of this epoch, if that is the last one. */
  isSince({ start }: Op): boolean {
    return start >= this.history.events[this.since]!.time
  }

  /** Whether the answer to an operation has this epoch. */
  hasEpoch(op: Op): boolean {
    return epochOf(op) === this.epoch
  }

  oneOf<A>(items: ReadonlyArray<A>): A | undefined {
    return items[this.pick(items.length)]
  }

  private get acknowledged(): ReadonlyArray<Write> {
    const there = new Set(this.log.commits.map(({ write }) => write))
    return this.ops.filter(isWrite).filter(op => this.isSince(op) && isEffective(op) && there.has(op))
  }

  /** Acknowledged writes of the log that were tried once. */
  get writes(): ReadonlyArray<Write> {
    return this.acknowledged.filter(({ tries }) => tries.length === 1)
  }

  /** Acknowledged writes of the log that had an `Idempotency-Key`. */
  get keyed(): ReadonlyArray<Write> {
    return this.acknowledged.filter(({ action }) => action.idempotencyKey !== undefined)
  }

  /** Deletes of a prefix that the log has, were tried once, and select nothing that expires. */
  get prefixDeletes() {
    return this.writes.flatMap(write => {
      const { prefixDelete } = write.action
      const commit = this.log.commits.find(one => one.write === write)
      if (prefixDelete === undefined || commit === undefined) return []
      const { namespace, prefix } = prefixDelete
      const states = [...this.log.keysOf(namespace)].flatMap(key => {
        const state = this.log.stateAt(H.addressOf({ namespace, key }), commit.index)
        return state?.change.op === "set" ? [state] : []
      })
      const expires = states.some(state => state.change.key.startsWith(prefix) && state.expires !== undefined)
      return expires ? [] : [{ write, prefixDelete, commit, states }]
    })
  }

  /** All states of keys with an entry that does not expire. */
  get lasting(): ReadonlyArray<State> {
    return this.log.commits.flatMap(({ index, made }) =>
      made.flatMap(({ change }) => {
        const state = this.log.stateAt(H.addressOf(change), index + 1)
        return state?.change === change && change.op === "set" && state.expires === undefined ? [state] : []
      })
    )
  }

  get written(): ReadonlyArray<State> {
    return this.lasting.filter(({ commit }) => commit.write !== undefined && this.isSince(commit.write))
  }

  next(state: State): State | undefined {
    const states = this.log.statesOf(H.addressOf(state.change))
    return states[states.indexOf(state) + 1]
  }

  get present(): ReadonlyArray<State> {
    return this.lasting.filter(state => this.next(state) === undefined)
  }

  get past(): ReadonlyArray<State> {
    return this.lasting.filter(state => {
      const write = this.next(state)?.commit.write
      return write !== undefined && isEffective(write)
    })
  }
}

export const retimed = (history: H.History, events: ReadonlyArray<H.Event>): H.History => ({
  ...history,
  events: events.map((event, index) => ({ ...event, time: index + 1 }))
})

export const wallEnd = ({ events }: H.History): number => events.at(-1)!.wall

type Where = { readonly before: number; readonly wall: number }

export const beforeEvent = ({ history }: MutableHistory, before: number): Where => ({
  before,
  wall: history.events[before]!.wall
})

/** An operation that is invoked and answered at once, before an event or at the end. */
export const withOperation = (
  { history }: MutableHistory,
  action: H.Action,
  outcome: { readonly result: H.Result } | Pick<H.Fail, "refused" | "gone">,
  { before, wall }: Where = { before: history.events.length - 1, wall: wallEnd(history) }
): Mutated => {
  const id = 1_000_000 + history.events.length
  const at = { time: 0, wall }
  const invoke: H.Invoke = { type: "invoke", id, client: "mutant", node: "model", action, ...at }
  const end: H.Event =
    "result" in outcome
      ? { type: "ok", id, ...outcome, ...at }
      : { type: "fail", id, reason: "mutant", ...outcome, ...at }
  return { history: retimed(history, history.events.toSpliced(before, 0, invoke, end)), names: [id] }
}

export const pollAfter = (after: number, epoch?: string): H.PollAction => ({
  ...{ type: "poll", follower: "mutant", after, limit: 100_000, wait: 0 },
  ...(epoch === undefined ? {} : { epoch })
})

export const withPoll = (subject: MutableHistory, after: number, changes: ReadonlyArray<H.Change>, lastSeq: number) =>
  withOperation(subject, pollAfter(after), { result: { changes, lastSeq, epoch: subject.epoch } })

export const entryOf = ({ change, expires }: State): H.Entry => {
  const { actor, key, namespace, timestamp, value, version } = change
  return { namespace, key, value, version, updatedBy: actor, updatedAt: timestamp, expiresAt: expires?.min ?? null }
}

export const address = ({ change: { key, namespace } }: State) => ({ namespace, key })

const isOf = (one: { readonly epoch?: string }, epoch: string): boolean => (one.epoch ?? noEpoch) === epoch

export const withChanges = (
  { epoch, history }: MutableHistory,
  change: (changes: ReadonlyArray<H.Change>) => ReadonlyArray<H.Change>
): H.History => ({
  ...history,
  events: history.events.map((event): H.Event => {
    if (event.type === "seen") return isOf(event, epoch) ? { ...event, changes: change(event.changes) } : event
    if (event.type !== "ok" || !("changes" in event.result) || !isOf(event.result, epoch)) return event
    return { ...event, result: { ...event.result, changes: change(event.result.changes) } }
  })
})

export const withRecord = (
  subject: MutableHistory,
  seq: number,
  fields: Partial<H.Change>,
  name: number | string = `seq ${seq}`
): Mutated => ({
  history: withChanges(subject, changes =>
    changes.map(change => (change.seq === seq ? { ...change, ...fields } : change))
  ),
  names: [name]
})

/** Changes the invocation or the outcome of an operation. */
export const withEvent = (
  { history }: MutableHistory,
  id: number,
  change: (event: H.Invoke | H.Ok) => H.Event
): Mutated => ({
  history: {
    ...history,
    events: history.events.map(event =>
      (event.type === "invoke" || event.type === "ok") && event.id === id ? change(event) : event
    )
  },
  names: [id]
})

/** Changes a write, in all its tries. */
export const withWrite = (
  { history, ops }: MutableHistory,
  id: number,
  change: (action: H.WriteAction) => Partial<H.WriteAction>
): Mutated => {
  const write = ops.filter(isWrite).find(op => op.id === id)
  const tries = new Set(write?.tries.map(one => one.id))
  const events = history.events.map(event =>
    event.type === "invoke" && event.action.type === "write" && tries.has(event.id)
      ? { ...event, action: { ...event.action, ...change(event.action) } }
      : event
  )
  return { history: { ...history, events }, names: [id] }
}

export const withResult = (subject: MutableHistory, id: number, result: H.Result): Mutated =>
  withEvent(subject, id, event => (event.type === "ok" ? { ...event, result } : event))

export const withSeen = (
  { history }: MutableHistory,
  seen: H.Seen,
  ...others: ReadonlyArray<Partial<H.Seen>>
): Mutated => {
  const events = history.events.flatMap(event =>
    event === seen ? others.map(fields => ({ ...seen, ...fields })) : event
  )
  return { history: retimed(history, events), names: [`follower ${seen.follower}`] }
}

export const fold = ({ log }: MutableHistory, namespace: string, seq: number): ReadonlyArray<State> =>
  [...log.keysOf(namespace)].sort().flatMap(key => {
    const state = log.stateAt(H.addressOf({ namespace, key }), log.positionOf(seq))
    return state?.change.op === "set" ? [state] : []
  })

/** A kind of violation, and how it is applied to a history; `undefined` if it cannot be. */
export interface Mutation {
  readonly name: string
  readonly rule: Rule
  /** Whether it is wrong regardless of the log: it is also found in an epoch whose end was lost. */
  readonly isForm: boolean
  /** Whether it needs a history of two epochs. */
  readonly isOfEpochs: boolean
  readonly apply: (subject: MutableHistory) => Mutated | undefined
}

const mutations =
  (isForm: boolean, isOfEpochs: boolean) =>
  <A>(
    rule: Rule,
    name: string,
    among: (subject: MutableHistory) => ReadonlyArray<A>,
    change: (subject: MutableHistory, chosen: A) => Mutated | undefined
  ): Mutation => ({
    ...{ name, rule, isForm, isOfEpochs },
    apply: subject => {
      const chosen = subject.oneOf(among(subject))
      return chosen === undefined ? undefined : change(subject, chosen)
    }
  })

export const mutation = mutations(false, false)
export const ofForm = mutations(true, false)
export const ofTwoEpochs = mutations(false, true)

/** What mutations choose from. */
export const once = () => [0]
export const writes = (subject: MutableHistory) => subject.writes
export const keyed = (subject: MutableHistory) => subject.keyed
export const present = (subject: MutableHistory) => subject.present
export const past = (subject: MutableHistory) => subject.past
export const records = ({ log }: MutableHistory) => log.records
export const batches = ({ log }: MutableHistory) => log.commits.filter(({ made }) => made.length > 1)
export const seenWith =
  (least: number) =>
  ({ epoch, history }: MutableHistory): ReadonlyArray<H.Seen> =>
    history.events
      .filter(event => event.type === "seen")
      .filter(event => isOf(event, epoch) && event.changes.length >= least)
