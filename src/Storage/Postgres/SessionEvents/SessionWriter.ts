/**
 * Commits groups of writes to histories, and keeps the sessions that this node owns and watches up to date with them.
 */
import { Effect, Either, Exit } from "effect"
import { compare } from "../../../Client/KeyOrder.ts"
import { activityOf, bitsOf } from "../../../Gateway/SessionEvents/ActivityBits.ts"
import { maxReceipts } from "../../../Gateway/SessionEvents/Limits.ts"
import { type Opened, OutOfStep, type Retention, SessionElsewhere } from "../../../Gateway/SessionEvents.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type * as SessionCommit from "../../Commit/SessionCommit.ts"
import { isOfContent, type QueryError, unavailable } from "../Database/DatabaseError.ts"
import * as GroupCall from "../Database/GroupCall.ts"
import type { Pool } from "../Database/Pool.ts"
import { type Parameter, textArray } from "../Database/Statement.ts"
import type { SessionNotifications } from "./SessionNotifications.ts"
import { storedId } from "./SessionQueries.ts"

/** One change of one session. The token of a release is the one with which the node owned the session. */
export type EventWrite =
  | SessionCommit.EventWrite
  | { readonly op: "release"; readonly session: string; readonly token: number }

interface OpenedRow extends Omit<Opened, "activity"> {
  /** As bits. */
  readonly activity: number
}

/** The outcome of one write: null if it was stored. */
type Outcome =
  | null
  | { readonly _tag: "Opened"; readonly token: number; readonly history: OpenedRow }
  | { readonly _tag: "OutOfStep"; readonly headSeq: number | null }
  | { readonly _tag: "Elsewhere" }

/** An encoded group, and the order in which the function does its writes. */
interface Encoded {
  /** After the id of the group. */
  readonly parameters: ReadonlyArray<Parameter>
  /** The index in the group of each write, in the order of the function. */
  readonly order: ReadonlyArray<number>
}

export interface LeaseHolder {
  readonly node: string
  /** The length of its lease, in milliseconds. */
  readonly lease: number
  /** Returns the token with which the node owns a session, if it does. */
  readonly tokenOf: (session: string) => number | undefined
}

/** The members of a write. The function takes those that are missing for null. */
const membersOf = (write: EventWrite, tokenOf: LeaseHolder["tokenOf"]): object => {
  if (write.op === "release") return write
  const { op, session } = write
  // The node may or may not have owned the session that it opens.
  const token = op === "open" ? undefined : tokenOf(session)
  if (op === "configure") return { op, session, token, ...write.configuration }
  if (op !== "append") return { ...write, token }
  const { activity, after, epoch, receipt, recoveryState: state, revoked, texts, timestamp } = write
  const size = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
  const { digest, id, turnId: turn } = receipt ?? {}
  return {
    ...{ op, session, token, epoch, after, timestamp, count: texts.length, size, state, digest, turn },
    receipt: id === undefined ? undefined : storedId(id),
    revoked: revoked === undefined ? undefined : storedId(revoked),
    activity: activity === undefined ? undefined : bitsOf(activity),
    at: activity?.at
  }
}

/** Encodes a group. The writes of one session keep their order. */
export const encode = (
  writes: ReadonlyArray<EventWrite>,
  { lease, node, tokenOf }: LeaseHolder,
  { bytes, events }: Retention
): Encoded => {
  const order = writes.map((_, index) => index).sort((a, b) => compare(writes[a]!.session, writes[b]!.session) || a - b)
  const ordered = order.map(index => writes[index]!)
  const members = JSON.stringify(ordered.map(write => membersOf(write, tokenOf)))
  const texts = textArray(ordered.flatMap(write => (write.op === "append" ? write.texts : [])))
  return { parameters: [node, lease, events, bytes, maxReceipts, members, texts], order }
}

const decode = ({ order }: Encoded, result: string): ReadonlyArray<Outcome> => {
  const outcomes: Array<Outcome> = []
  for (const [position, outcome] of (JSON.parse(result) as ReadonlyArray<Outcome>).entries()) {
    outcomes[order[position]!] = outcome
  }
  return outcomes
}

export type WriteError = OutOfStep | SessionElsewhere | StoreUnavailable

/** The result of a write. One that opens a history returns it. */
type Result = Either.Either<Opened | undefined, WriteError>

/** The connections, this node and its sessions. */
export interface Options {
  readonly pool: Pool
  /** See `GroupCall`. */
  readonly lastServerTime: () => number
  readonly node: string
  /** The length of the lease of the node, in milliseconds. */
  readonly lease: number
  readonly owned: OwnedSessions
  readonly notifications: SessionNotifications
  readonly retention: Retention
}

/** Returns the outcome of each write. Callers must not overlap calls. For `isGivenUp` see `GroupCall`. */
export type Commit = (
  group: ReadonlyArray<EventWrite>,
  isGivenUp: () => boolean
) => Effect.Effect<ReadonlyArray<Result>, StoreUnavailable>

export const make = ({ lastServerTime, lease, node, notifications, owned, pool, retention }: Options): Commit => {
  const holder: LeaseHolder = { node, lease, tokenOf: owned.tokenOf }
  const call = GroupCall.make(pool, lastServerTime)

  /** Applies the outcome of a write to what this node knows of the session. */
  const settle = ({ op, session }: EventWrite, outcome: Outcome): Result => {
    if (outcome === null) {
      if (op === "remove") owned.remove(session)
      if (op === "remove" || op === "append") notifications.changed(session)
      return Either.right(undefined)
    }
    switch (outcome._tag) {
      case "Opened":
        owned.add(session, outcome.token)
        if (op === "renewEpoch") notifications.changed(session)
        return Either.right({ ...outcome.history, activity: activityOf(outcome.history.activity) })
      case "OutOfStep":
        return Either.left(new OutOfStep({ session, headSeq: outcome.headSeq }))
      case "Elsewhere":
        owned.lose(session)
        return Either.left(new SessionElsewhere({ session }))
    }
  }

  const commitAll = (
    group: ReadonlyArray<EventWrite>,
    isGivenUp: () => boolean
  ): Effect.Effect<ReadonlyArray<Result>, QueryError | StoreUnavailable> =>
    Effect.suspend(() => {
      const encoded = encode(group, holder, retention)
      return Effect.map(
        call("write_sessions", id => [id, ...encoded.parameters], isGivenUp),
        result => decode(encoded, result).map((outcome, index) => settle(group[index]!, outcome))
      )
    })

  /** A write that the database refuses must not fail the others of its group. */
  const commitEach = (
    group: ReadonlyArray<EventWrite>,
    isGivenUp: () => boolean
  ): Effect.Effect<ReadonlyArray<Result>> =>
    Effect.forEach(group, one =>
      Effect.match(commitAll([one], isGivenUp), {
        onFailure: (error): Result => Either.left(unavailable(error)),
        onSuccess: ([outcome]) => outcome!
      })
    )

  return (group, isGivenUp) =>
    Effect.catchAll(commitAll(group, isGivenUp), error =>
      isOfContent(error) && group.length > 1 ? commitEach(group, isGivenUp) : Exit.fail(unavailable(error))
    )
}

/** The sessions that the node owns to its knowledge, each with its fencing token. */
export class OwnedSessions {
  private readonly tokens = new Map<string, number>()
  private readonly lost = new Set<string>()
  private readonly hasLost = Effect.unsafeMakeLatch(false)

  /** @param onLost called with each session that another node has taken */
  constructor(private readonly onLost: () => void = () => {}) {}

  get size(): number {
    return this.tokens.size
  }

  readonly tokenOf = (session: string): number | undefined => this.tokens.get(session)

  sessions(): ReadonlyArray<string> {
    return [...this.tokens.keys()]
  }

  add(session: string, token: number): void {
    this.lost.delete(session)
    this.tokens.set(session, token)
  }

  /** The node has given the session up itself. */
  remove(session: string): void {
    this.lost.delete(session)
    this.tokens.delete(session)
  }

  /** Another node has taken the session. */
  lose(session: string, token = this.tokens.get(session)): void {
    if (token === undefined || this.tokens.get(session) !== token) return
    this.tokens.delete(session)
    this.lost.add(session)
    this.hasLost.unsafeOpen()
    this.onLost()
  }

  /** Waits until others have taken sessions, and returns those that it has not returned before. */
  readonly takeLost: Effect.Effect<ReadonlyArray<string>> = Effect.repeat(
    Effect.zipRight(
      this.hasLost.await,
      Effect.sync(() => {
        this.hasLost.unsafeClose()
        const all = [...this.lost]
        this.lost.clear()
        return all
      })
    ),
    // This node may own them again.
    { until: all => all.length > 0 }
  )
}
