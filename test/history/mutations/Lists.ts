/** Violations of lists. */
import type * as H from "../History.ts"
import { isList } from "../Operations.ts"
import { entryOf, fold, type Mutation, mutation, type Subject, withOperation, withResult } from "./Subject.ts"

const listed = ({ ops }: Subject, least: number) =>
  ops
    .filter(isList)
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
