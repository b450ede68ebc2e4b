/** Violations of lists. */
import type * as H from "../History.ts"
import { isList } from "../Operations.ts"
import {
  entryOf,
  fold,
  type MutableHistory,
  type Mutation,
  mutation,
  withAction,
  withOperation,
  withResult
} from "./MutableHistory.ts"

const listed = (subject: MutableHistory, least: number) =>
  subject.ops
    .filter(isList)
    .filter(op => subject.hasEpoch(op))
    .flatMap(op =>
      op.outcome.type === "ok" && op.outcome.result.items.length >= least ? [{ op, result: op.outcome.result }] : []
    )

const isLasting = ({ expiresAt }: H.Entry): boolean => expiresAt === null

export const ofLists: ReadonlyArray<Mutation> = [
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
    "a list has an absent entry",
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
    }),
    { isForm: true }
  ),
  mutation(
    "list",
    "a list in reverse is not",
    subject => listed(subject, 2).filter(({ op }) => op.action.reverse),
    (subject, { op, result }) => ({
      history: withResult(subject, op.id, { ...result, items: result.items.toReversed() }),
      names: [op.id]
    }),
    { isForm: true }
  ),
  mutation(
    "list",
    "a list has the key at which it ends",
    subject => listed(subject, 1),
    (subject, { op, result }) => {
      const { key: end } = result.items[subject.pick(result.items.length)]!
      return { history: withAction(subject, op.id, { ...op.action, end }), names: [op.id] }
    },
    { isForm: true }
  ),
  mutation(
    "list",
    "a list has a key before its start",
    subject => listed(subject, 1),
    (subject, { op, result }) => {
      const start = `${result.items[subject.pick(result.items.length)]!.key}!`
      return { history: withAction(subject, op.id, { ...op.action, start }), names: [op.id] }
    },
    { isForm: true }
  ),
  mutation(
    "list",
    "a list counts an entry too many or too few",
    subject => listed(subject, 0).filter(({ op }) => op.action.count),
    (subject, { op, result }) => {
      const { count = 0, lastSeq } = result
      if (fold(subject, op.action.namespace, lastSeq).some(({ expires }) => expires !== undefined)) return undefined
      const wrong = subject.pick(2) === 0 ? count + 1 : count - 1
      return { history: withResult(subject, op.id, { ...result, count: wrong }), names: [op.id] }
    }
  ),
  mutation(
    "list",
    "a page has no link to the next one",
    subject => listed(subject, 1).filter(({ result }) => result.more),
    (subject, { op, result }) => {
      const later = fold(subject, op.action.namespace, result.lastSeq).filter(({ change: { key }, expires }) => {
        const last = result.items.at(-1)!.key
        const { end = "~", prefix, reverse, start = "" } = op.action
        const isLater = reverse ? key < last : key > last
        return isLater && key.startsWith(prefix) && key >= start && key < end && expires === undefined
      })
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
