/** Makes valid histories invalid: what a store would show that breaks one of its promises. */
import * as H from "./History.ts"
import { Log, type State } from "./Log.ts"
import { isEffective, isList, isPoll, isWrite, type Op, operations, type Write } from "./Operations.ts"
import { joined, noEpoch } from "./Sightings.ts"
import type { Rule } from "./Violation.ts"

/** An invalid history. */
export interface Mutated {
  readonly history: H.History
  /** One of these operations or texts must be named. */
  readonly names: ReadonlyArray<number | string>
}

/** A history to mutate, and what the checker knows of it. */
class Subject {
  readonly ops: ReadonlyArray<Op>
  readonly log: Log
  readonly epoch: string

  /** @param pick a whole number below its argument, at random */
  constructor(
    readonly history: H.History,
    readonly pick: (below: number) => number
  ) {
    this.ops = operations(history)
    const [epoch = noEpoch, found] = [...joined(history, this.ops)][0] ?? []
    this.epoch = epoch
    const writes = new Map(this.ops.filter(isWrite).map(op => [op.action.actor, op]))
    this.log = new Log(found?.records ?? [], writes, history.header.clockError)
  }

  oneOf<A>(items: ReadonlyArray<A>): A | undefined {
    return items[this.pick(items.length)]
  }

  get writes(): ReadonlyArray<Write> {
    const there = new Set(this.log.commits.map(({ write }) => write))
    return this.ops.filter(isWrite).filter(op => isEffective(op) && there.has(op))
  }

  /** The states of all keys in which they have an entry that does not expire. */
  get lasting(): ReadonlyArray<State> {
    return this.log.commits.flatMap(({ index, made }) =>
      made.flatMap(({ change }) => {
        const state = this.log.stateAt(H.addressOf(change), index + 1)
        return state?.change === change && change.op === "set" && state.expires === undefined ? [state] : []
      })
    )
  }

  /** What comes after a state of a key. */
  next(state: State): State | undefined {
    const states = this.log.statesOf(H.addressOf(state.change))
    return states[states.indexOf(state) + 1]
  }

  /** States that the key still has in the end. */
  get present(): ReadonlyArray<State> {
    return this.lasting.filter(state => this.next(state) === undefined)
  }

  /** States that are no more since an acknowledged write. */
  get past(): ReadonlyArray<State> {
    return this.lasting.filter(state => {
      const write = this.next(state)?.commit.write
      return write !== undefined && isEffective(write)
    })
  }
}

const retimed = (history: H.History, events: ReadonlyArray<H.Event>): H.History => ({
  ...history,
  events: events.map((event, index) => ({ ...event, time: index + 1 }))
})

const wallEnd = ({ events }: H.History): number => events.at(-1)!.wall

/** An operation that is invoked and answered at once, before an event or at the end. */
const withOperation = (
  { history }: Subject,
  action: H.Action,
  outcome: { readonly result: H.Result } | { readonly refused: H.Refusal },
  { before = history.events.length - 1, wall = wallEnd(history) } = {}
): Mutated => {
  const id = 1_000_000 + history.events.length
  const at = { time: 0, wall }
  const invoke: H.Invoke = { type: "invoke", id, client: "mutant", node: "model", action, ...at }
  const end: H.Event =
    "result" in outcome
      ? { type: "ok", id, ...outcome, ...at }
      : { type: "fail", id, reason: "mutant", ...outcome, ...at }
  const events = history.events.toSpliced(before, 0, invoke, end)
  return { history: retimed(history, events), names: [id] }
}

const entryOf = ({ change, expires }: State): H.Entry => {
  const { actor, key, namespace, timestamp, value, version } = change
  return { namespace, key, value, version, updatedBy: actor, updatedAt: timestamp, expiresAt: expires?.min ?? null }
}

const address = ({ change: { key, namespace } }: State) => ({ namespace, key })

/** Changes what all followers saw. */
const withChanges = (
  { history }: Subject,
  change: (changes: ReadonlyArray<H.Change>) => ReadonlyArray<H.Change>
): H.History => ({
  ...history,
  events: history.events.map((event): H.Event => {
    if (event.type === "seen") return { ...event, changes: change(event.changes) }
    if (event.type !== "ok" || !("changes" in event.result)) return event
    return { ...event, result: { ...event.result, changes: change(event.result.changes) } }
  })
})

const withRecord = (subject: Subject, seq: number, fields: Partial<H.Change>): H.History =>
  withChanges(subject, changes => changes.map(change => (change.seq === seq ? { ...change, ...fields } : change)))

/** Changes the invocation or the outcome of an operation. */
const withEvent = ({ history }: Subject, id: number, change: (event: H.Invoke | H.Ok) => H.Event): H.History => ({
  ...history,
  events: history.events.map(event =>
    (event.type === "invoke" || event.type === "ok") && event.id === id ? change(event) : event
  )
})

const withWrite = (subject: Subject, id: number, change: (action: H.WriteAction) => H.WriteAction): H.History =>
  withEvent(subject, id, event =>
    event.type === "invoke" && event.action.type === "write" ? { ...event, action: change(event.action) } : event
  )

const withResult = <R extends H.Result>(subject: Subject, id: number, result: R): H.History =>
  withEvent(subject, id, event => (event.type === "ok" ? { ...event, result } : event))

const withSeen = ({ history }: Subject, seen: H.Seen, replacement: ReadonlyArray<Partial<H.Seen>>): H.History =>
  retimed(
    history,
    history.events.flatMap(event => (event === seen ? replacement.map(fields => ({ ...seen, ...fields })) : event))
  )

const fold = ({ log }: Subject, namespace: string, seq: number): ReadonlyArray<State> =>
  [...log.keysOf(namespace)].sort().flatMap(key => {
    const state = log.stateAt(H.addressOf({ namespace, key }), log.positionOf(seq))
    return state?.change.op === "set" ? [state] : []
  })

/** A kind of violation, and how a history gets it; `undefined` where it has nothing to do it to. */
export interface Mutation {
  readonly name: string
  readonly rule: Rule
  readonly apply: (subject: Subject) => Mutated | undefined
}

const mutation = <A>(
  rule: Rule,
  name: string,
  among: (subject: Subject) => ReadonlyArray<A>,
  change: (subject: Subject, chosen: A) => Mutated | undefined
): Mutation => ({
  name,
  rule,
  apply: subject => {
    const chosen = subject.oneOf(among(subject))
    return chosen === undefined ? undefined : change(subject, chosen)
  }
})

const records = ({ log }: Subject) => log.records
const seenWith =
  (least: number) =>
  ({ history }: Subject): ReadonlyArray<H.Seen> =>
    history.events.filter(event => event.type === "seen").filter(({ changes }) => changes.length >= least)
const idOf = ({ log }: Subject, seq: number): number => log.commits[log.positionOf(seq) - 1]?.write?.id ?? -1

const ofLog: ReadonlyArray<Mutation> = [
  mutation("log", "a record is missing to all", records, (subject, { seq }) =>
    seq === subject.log.end
      ? undefined
      : {
          history: withChanges(subject, changes => changes.filter(change => change.seq !== seq)),
          names: [`seq ${seq}`]
        }
  ),
  mutation("log", "time falls", records, (subject, { seq, timestamp }) => {
    const previous = subject.log.records[seq - 2]
    if (previous === undefined) return undefined
    const history = withRecord(subject, seq, { timestamp: Math.min(timestamp, previous.timestamp) - 1 })
    return { history, names: [`seq ${seq}`] }
  }),
  mutation("log", "a record is of nobody", records, (subject, { seq }) => ({
    history: withRecord(subject, seq, { actor: "nobody" }),
    names: ["nobody"]
  })),
  mutation(
    "log",
    "a record has another value than was written",
    subject => records(subject).filter(({ op }) => op === "set"),
    (subject, { seq }) => ({ history: withRecord(subject, seq, { value: "mutant" }), names: [idOf(subject, seq)] })
  ),
  mutation("log", "a follower sees another record than the others", seenWith(1), (subject, seen) => ({
    history: withSeen(subject, seen, [{ changes: seen.changes.with(0, { ...seen.changes[0]!, value: "mutant" }) }]),
    names: [`follower ${seen.follower}`]
  })),
  mutation("chain", "a version is skipped", records, (subject, { seq, version }) => ({
    history: withRecord(subject, seq, { version: version + 1 }),
    names: [`seq ${seq}`]
  })),
  mutation(
    "chain",
    "a precondition that names another version holds",
    subject => subject.writes.filter(({ action }) => action.operations.length === 1),
    (subject, { action, id }) => {
      const [operation] = action.operations as [H.Operation]
      const position = subject.log.commits.find(({ write }) => write?.id === id)!.index
      const state = subject.log.stateAt(H.addressOf(operation), position)
      const wrong = state?.change.op === "set" ? subject.pick(state.change.version) : 1 + subject.pick(9)
      const history = withWrite(subject, id, action => ({
        ...action,
        operations: [{ ...operation, ifVersion: wrong }]
      }))
      return { history, names: [id] }
    }
  )
]

const ofWrites: ReadonlyArray<Mutation> = [
  mutation(
    "outcome",
    "an acknowledged write is lost",
    () => [0],
    subject => {
      const operation = { op: "set", namespace: "plain", key: "k", value: 1 } as const
      const action = { type: "write", by: "put", actor: "mutant", operations: [operation] } as const
      return withOperation(subject, action, { result: { results: [{ version: 1 }] } })
    }
  ),
  mutation(
    "outcome",
    "a write is told another result than the log has",
    ({ writes }) => writes,
    (subject, { id, outcome }) => {
      if (outcome.type !== "ok") return undefined
      const results = outcome.result.results.map(
        (result): H.OperationResult =>
          "version" in result ? { version: result.version + 1 } : { deleted: !result.deleted }
      )
      return { history: withResult(subject, id, { results }), names: [id] }
    }
  ),
  mutation(
    "outcome",
    "a write that was refused is in the log",
    ({ writes }) => writes,
    (subject, { id }) => ({
      history: withEvent(subject, id, event =>
        event.type === "ok" ? { type: "fail", id, reason: "mutant", time: event.time, wall: event.wall } : event
      ),
      names: [id]
    })
  ),
  mutation(
    "batch",
    "a part of a batch is missing",
    ({ writes }) => writes,
    (subject, { id }) => ({
      history: withWrite(subject, id, action => ({
        ...action,
        operations: [...action.operations, { op: "set", namespace: "plain", key: "mutant", value: 1 }]
      })),
      names: [id]
    })
  ),
  mutation(
    "batch",
    "a write has records that it did not ask for",
    ({ log }) =>
      log.commits.flatMap(({ made, write }) =>
        made.length > 1 && made.at(-1)!.operation === write?.action.operations.at(-1) ? [write!] : []
      ),
    (subject, { id }) => ({
      history: withWrite(subject, id, action => ({ ...action, operations: action.operations.slice(0, -1) })),
      names: [id]
    })
  ),
  mutation(
    "batch",
    "a write is applied twice",
    ({ present }) => present.filter(({ commit }) => commit.write?.action.operations.length === 1),
    (subject, { change, commit }) => {
      const again = { ...change, seq: subject.log.end + 1, version: change.version + 1 }
      const { epoch } = subject
      const action = { type: "poll", follower: "mutant", after: again.seq - 1, limit: 9, wait: 0 } as const
      const { history } = withOperation(subject, action, { result: { changes: [again], lastSeq: again.seq, epoch } })
      return again.seq - 1 === change.seq ? undefined : { history, names: [commit.write!.id] }
    }
  ),
  mutation(
    "order",
    "a write is seen before it is invoked",
    ({ writes }) => writes,
    (subject, { id }) => {
      const { events } = subject.history
      const isOwn = (event: H.Event) => (event.type === "invoke" || event.type === "ok") && event.id === id
      const last = events.length - 1
      const moved = [...events.slice(0, last).filter(event => !isOwn(event)), ...events.filter(isOwn), events[last]!]
      return { history: retimed(subject.history, moved), names: [id] }
    }
  ),
  mutation(
    "order",
    "two writes stand in the log the wrong way round",
    ({ log: { commits } }) =>
      commits.flatMap((first, index) => {
        const second = commits[index + 1]
        const areSingle = first.made.length === 1 && second?.made.length === 1
        const isOther = areSingle && H.addressOf(first.made[0]!.change) !== H.addressOf(second.made[0]!.change)
        const isOrdered = (first.write?.end ?? Number.POSITIVE_INFINITY) < (second?.write?.start ?? 0)
        return isOther && isOrdered ? [{ first, second }] : []
      }),
    (subject, { first, second }) => {
      const a = first.made[0]!.change
      const b = second.made[0]!.change
      const swapped = new Map([
        [a.seq, { ...b, seq: a.seq, timestamp: a.timestamp }],
        [b.seq, { ...a, seq: b.seq, timestamp: b.timestamp }]
      ])
      const history = withChanges(subject, changes => changes.map(change => swapped.get(change.seq) ?? change))
      return { history, names: [first.write!.id, second.write!.id] }
    }
  )
]

const ofReads: ReadonlyArray<Mutation> = [
  mutation(
    "read",
    "an entry is read that an acknowledged write had replaced",
    ({ past }) => past,
    (subject, state) =>
      withOperation(subject, { type: "get", ...address(state) }, { result: { entry: entryOf(state) } })
  ),
  mutation(
    "read",
    "an entry is not found",
    ({ present }) => present,
    (subject, state) => withOperation(subject, { type: "get", ...address(state) }, { result: { entry: null } })
  ),
  mutation(
    "read",
    "an entry is said not to be modified that has been",
    ({ past }) => past,
    (subject, state) => {
      const notModified = state.change.version
      const action = { type: "get", ...address(state), ifNoneMatch: notModified } as const
      return withOperation(subject, action, { result: { notModified } })
    }
  ),
  mutation(
    "read",
    "an entry is read before it is written",
    ({ lasting }) => lasting,
    (subject, state) =>
      withOperation(subject, { type: "get", ...address(state) }, { result: { entry: entryOf(state) } }, { before: 0 })
  ),
  mutation(
    "read",
    "a precondition fails that holds",
    ({ present }) => present,
    (subject, state) => {
      const { version } = state.change
      const operation = { op: "delete", ...address(state), ifVersion: version } as const
      const action = { type: "write", by: "delete", actor: "mutant", operations: [operation] } as const
      return withOperation(subject, action, { refused: { currentVersion: version } })
    }
  ),
  mutation(
    "read",
    "a refused write is told a version that had been replaced",
    ({ past }) => past,
    (subject, state) => {
      const operation = { op: "delete", ...address(state), ifVersion: 1_000_000 } as const
      const action = { type: "write", by: "delete", actor: "mutant", operations: [operation] } as const
      return withOperation(subject, action, { refused: { currentVersion: state.change.version } })
    }
  ),
  mutation(
    "read",
    "a delete finds nothing where there is an entry",
    ({ present }) => present,
    (subject, state) => {
      const operation = { op: "delete", ...address(state) } as const
      const action = { type: "write", by: "delete", actor: "mutant", operations: [operation] } as const
      return withOperation(subject, action, { result: { results: [{ deleted: false }] } })
    }
  ),
  mutation(
    "read",
    "a batch is seen in part by two reads, one after the other",
    subject =>
      subject.lasting.flatMap(state => {
        const others = state.commit.made.flatMap(({ change }) => {
          const old = subject.log.stateAt(H.addressOf(change), state.position - 1)
          return old?.change.op === "set" && old.expires === undefined ? [old] : []
        })
        const isOther = (old: State) => H.addressOf(old.change) !== H.addressOf(state.change)
        return others.filter(isOther).map(old => ({ state, old }))
      }),
    (subject, { old, state }) => {
      const write = state.commit.write!
      const before = subject.history.events.findIndex(({ time }) => time === write.end)
      if (before === -1) return undefined
      const { wall } = subject.history.events[before]!
      // The second one is inserted first, as it comes before the same event.
      const second = withOperation(
        subject,
        { type: "get", ...address(old) },
        { result: { entry: entryOf(old) } },
        { before, wall }
      )
      const both = withOperation(
        new Subject(second.history, subject.pick),
        { type: "get", ...address(state) },
        { result: { entry: entryOf(state) } },
        { before, wall }
      )
      return { history: both.history, names: second.names }
    }
  ),
  mutation(
    "batch",
    "a state is read that a batch has only in between",
    ({ log }) =>
      log.commits.flatMap(commit =>
        commit.made.flatMap(({ change }) => {
          const shown = log.stateAt(H.addressOf(change), commit.index + 1)
          return shown?.change !== change && change.op === "set"
            ? [{ position: commit.index + 1, change, commit, expires: undefined }]
            : []
        })
      ),
    (subject, state) =>
      withOperation(subject, { type: "get", ...address(state) }, { result: { entry: entryOf(state) } })
  ),
  mutation(
    "expiry",
    "an entry is read after its time",
    ({ log }) =>
      log.commits
        .flatMap(({ made }) => made.flatMap(({ change }) => log.statesOf(H.addressOf(change))))
        .filter(({ expires }) => expires !== undefined && expires.min === expires.max),
    (subject, state) => {
      const before = subject.history.events.findIndex(({ wall }) => wall > state.expires!.max)
      if (before === -1) return undefined
      const { wall } = subject.history.events[before]!
      return withOperation(
        subject,
        { type: "get", ...address(state) },
        { result: { entry: entryOf(state) } },
        { before, wall }
      )
    }
  ),
  mutation(
    "expiry",
    "an entry expires before its time",
    subject => records(subject).filter(({ actor }) => actor === "expiry"),
    (subject, { seq }) => {
      const record = subject.log.records[seq - 1]!
      const set = subject.log.stateAt(H.addressOf(record), subject.log.positionOf(seq) - 1)!
      const { actor } = set.change
      const write = subject.log.commits[set.position - 1]!.write!
      const history = withWrite(subject, write.id, action => ({
        ...action,
        operations: action.operations.map(operation =>
          operation.op === "set" ? { ...operation, ttlMs: 1_000_000 } : operation
        )
      }))
      return actor === "expiry" || (write.outcome.type === "ok" && write.outcome.result.entry !== undefined)
        ? undefined
        : { history, names: [write.id] }
    }
  )
]

const listed = ({ ops }: Subject, least: number) =>
  ops
    .filter(isList)
    .flatMap(op =>
      op.outcome.type === "ok" && op.outcome.result.items.length >= least ? [{ op, result: op.outcome.result }] : []
    )

const isLasting = ({ expiresAt }: H.Entry): boolean => expiresAt === null

const ofLists: ReadonlyArray<Mutation> = [
  mutation(
    "list",
    "a list is without an entry",
    subject => listed(subject, 2),
    (subject, { op, result }) => {
      const index = subject.pick(result.items.length - 1)
      if (!isLasting(result.items[index]!)) return undefined
      return {
        history: withResult(subject, op.id, { ...result, items: result.items.toSpliced(index, 1) }),
        names: [op.id]
      }
    }
  ),
  mutation(
    "list",
    "a list has an entry of another version",
    subject => listed(subject, 1),
    (subject, { op, result }) => {
      const index = subject.pick(result.items.length)
      const item = result.items[index]!
      const items = result.items.with(index, { ...item, version: item.version + 1 })
      return { history: withResult(subject, op.id, { ...result, items }), names: [op.id] }
    }
  ),
  mutation(
    "list",
    "a list has an entry that is not there",
    subject => listed(subject, 1),
    (subject, { op, result }) => {
      const last = result.items.at(-1)!
      const items = [...result.items, { ...last, key: `${last.key}~` }]
      return { history: withResult(subject, op.id, { ...result, items }), names: [op.id] }
    }
  ),
  mutation(
    "list",
    "a list is out of order",
    subject => listed(subject, 2),
    (subject, { op, result }) => ({
      history: withResult(subject, op.id, { ...result, items: result.items.toReversed() }),
      names: [op.id]
    })
  ),
  mutation(
    "list",
    "a page has no link to the next one",
    subject => listed(subject, 1).filter(({ result }) => result.more),
    (subject, { op, result }) => {
      const later = fold(subject, op.action.namespace, result.lastSeq).filter(
        ({ change, expires }) => change.key > result.items.at(-1)!.key && expires === undefined
      )
      if (later.length === 0) return undefined
      return { history: withResult(subject, op.id, { ...result, more: false }), names: [op.id] }
    }
  ),
  mutation(
    "batch",
    "a list has a part of a batch",
    ({ log }) => log.commits.filter(({ made }) => made.length > 1),
    (subject, { first }) => {
      const action = { type: "list", namespace: "plain", prefix: "" } as const
      const { epoch } = subject
      return withOperation(subject, action, { result: { items: [], lastSeq: first, more: false, epoch } })
    }
  ),
  mutation(
    "read",
    "a list is older than a write that was acknowledged",
    ({ writes }) => writes,
    (subject, { id }) => {
      const { first } = subject.log.commits.find(({ write }) => write?.id === id)!
      const { epoch } = subject
      const action = { type: "list", namespace: "plain", prefix: "" } as const
      const states = fold(subject, "plain", first - 1)
      if (states.some(({ expires }) => expires !== undefined)) return undefined
      const items = states.map(entryOf)
      return withOperation(subject, action, { result: { items, lastSeq: first - 1, more: false, epoch } })
    }
  )
]

const ofFollowers: ReadonlyArray<Mutation> = [
  mutation("follower", "a follower misses a record", seenWith(2), (subject, seen) => ({
    history: withSeen(subject, seen, [{ changes: seen.changes.toSpliced(subject.pick(seen.changes.length - 1), 1) }]),
    names: [`follower ${seen.follower}`]
  })),
  mutation("follower", "a follower gets records twice", seenWith(1), (subject, seen) => ({
    history: withSeen(subject, seen, [{}, {}]),
    names: [`follower ${seen.follower}`]
  })),
  mutation("follower", "a follower gets records out of order", seenWith(2), (subject, seen) => ({
    history: withSeen(subject, seen, [{ changes: seen.changes.toReversed() }]),
    names: [`follower ${seen.follower}`]
  })),
  mutation(
    "follower",
    "a follower does not get the last records",
    subject => {
      const last = new Map(seenWith(0)(subject).map(seen => [seen.follower, seen]))
      return [...last.values()].filter(({ changes }) => changes.length > 0)
    },
    (subject, seen) => ({ history: withSeen(subject, seen, []), names: [`follower ${seen.follower}`] })
  ),
  mutation(
    "follower",
    "a poll skips a record",
    ({ ops }) =>
      ops
        .filter(isPoll)
        .flatMap(op =>
          op.outcome.type === "ok" && op.outcome.result.changes.length > 1 ? [{ op, result: op.outcome.result }] : []
        ),
    (subject, { op, result }) => ({
      history: withResult(subject, op.id, { ...result, changes: result.changes.slice(1) }),
      names: [op.id]
    })
  ),
  mutation(
    "read",
    "a poll does not see a write that was acknowledged",
    ({ writes }) => writes,
    (subject, { id }) => {
      const after = subject.log.commits.find(({ write }) => write?.id === id)!.first - 1
      const action = { type: "poll", follower: "mutant", after, limit: 100, wait: 0 } as const
      const { epoch } = subject
      return withOperation(subject, action, { result: { changes: [], lastSeq: after, epoch } })
    }
  ),
  mutation(
    "batch",
    "a poll ends within a batch",
    ({ log }) => log.commits.filter(({ made }) => made.length > 1),
    (subject, { first, made }) => {
      const action = { type: "poll", follower: "mutant", after: first - 1, limit: 100, wait: 0 } as const
      const { epoch } = subject
      return withOperation(subject, action, { result: { changes: [made[0]!.change], lastSeq: first, epoch } })
    }
  ),
  mutation(
    "epoch",
    "the log ends before it did, in the same epoch",
    ({ log }) => (log.end === 0 ? [] : [log.end]),
    (subject, after) => {
      const action = { type: "poll", follower: "mutant", after, limit: 100, wait: 0 } as const
      const { epoch } = subject
      return withOperation(subject, action, { result: { changes: [], lastSeq: after - 1, epoch } })
    }
  )
]

/** Changes a valid history so that it is not valid any more. */
export const mutations: ReadonlyArray<Mutation> = [...ofLog, ...ofWrites, ...ofReads, ...ofLists, ...ofFollowers]

export const mutate = (mutation: Mutation, history: H.History, random: number): Mutated | undefined => {
  let state = random
  const pick = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return below === 0 ? 0 : (state >>> 4) % below
  }
  return mutation.apply(new Subject(history, pick))
}
