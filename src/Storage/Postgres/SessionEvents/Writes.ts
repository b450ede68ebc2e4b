/**
 * A group of writes as the parameters of `causeway.write_sessions`, and the decoding of its result.
 */

import { compare } from "../../../Client/KeyOrder.ts"
import { maxReceipts } from "../../../Gateway/SessionEvents/Limits.ts"
import type { Append, History, Retention } from "../../../Gateway/SessionEvents.ts"
import type * as SessionCommit from "../../SessionCommit.ts"
import * as Encoding from "../Database/Encoding.ts"
import { calling, type Parameter } from "../Database/Statement.ts"
import { storedId } from "./Queries.ts"
import { Op, Result } from "./WriteCodes.ts"

/** One change of one session. The token of a release is the one with which the node owned the session. */
export type EventWrite =
  | SessionCommit.EventWrite
  | { readonly op: "release"; readonly session: string; readonly token: number }

/** The outcome of one write. */
export type Outcome =
  | { readonly _tag: "Stored" }
  | { readonly _tag: "Opened"; readonly token: number; readonly history: History }
  | { readonly _tag: "OutOfStep"; readonly headSeq: number | null }
  | { readonly _tag: "Elsewhere" }

/** The statement that calls the function. */
export const call = calling("write_sessions", 22)

/** An encoded group, and the order in which the function does its writes. */
export interface Encoded {
  /** After the id of the group. */
  readonly parameters: ReadonlyArray<Parameter>
  /** The index in the group of each write, in the order of the function. */
  readonly order: ReadonlyArray<number>
}

/** The node that writes. */
export interface LeaseHolder {
  readonly node: string
  /** The length of its lease, in milliseconds. */
  readonly lease: number
  /** Returns the token with which the node owns a session, if it does. */
  readonly tokenOf: (session: string) => number | undefined
}

/** Encodes a group. The writes of one session keep their order. */
export const encode = (
  writes: ReadonlyArray<EventWrite>,
  { lease, node, tokenOf }: LeaseHolder,
  { bytes, events }: Retention
): Encoded => {
  const order = writes.map((_, index) => index).sort((a, b) => compare(writes[a]!.session, writes[b]!.session) || a - b)
  const texts: Array<string> = []
  const append = <A>(write: EventWrite, of: (append: Append) => A): A | null =>
    write.op === "append" ? of(write) : null
  const column = <A>(of: (write: EventWrite) => A): ReadonlyArray<A> => order.map(index => of(writes[index]!))
  const sizes = column(write => {
    if (write.op !== "append") return 0
    let size = 0
    for (const text of write.texts) {
      texts.push(text)
      size += Buffer.byteLength(text)
    }
    return size
  })
  const configurations = column(write => (write.op === "configure" ? write.configuration : undefined))
  const parameters: ReadonlyArray<Parameter> = [
    node,
    lease,
    events,
    bytes,
    maxReceipts,
    Encoding.integers(column(({ op }) => Op[op])),
    Encoding.texts(column(({ session }) => session)),
    Encoding.bigints(
      column(write => {
        // The node may or may not have owned the session that it opens.
        if (write.op === "open") return null
        return write.op === "release" ? write.token : (tokenOf(write.session) ?? null)
      })
    ),
    Encoding.texts(column(write => ("epoch" in write ? write.epoch : null))),
    Encoding.bigints(column(write => append(write, ({ after }) => after))),
    Encoding.bigints(column(write => append(write, ({ timestamp }) => timestamp))),
    Encoding.integers(column(write => append(write, ({ texts }) => texts.length) ?? 0)),
    Encoding.bigints(sizes),
    Encoding.texts(texts),
    Encoding.texts(column(write => append(write, ({ recoveryState }) => recoveryState))),
    Encoding.texts(
      column(write => append(write, ({ receipt }) => (receipt === undefined ? null : storedId(receipt.id))))
    ),
    Encoding.texts(column(write => append(write, ({ receipt }) => receipt?.digest ?? null))),
    Encoding.texts(column(write => append(write, ({ receipt }) => receipt?.turnId ?? null))),
    Encoding.texts(column(write => append(write, ({ revoked }) => (revoked === undefined ? null : storedId(revoked))))),
    Encoding.texts(configurations.map(configuration => configuration?.environment ?? null)),
    Encoding.texts(configurations.map(configuration => configuration?.deployment ?? null))
  ]
  return { parameters, order }
}

type Returned =
  | typeof Result.stored
  | readonly [typeof Result.outOfStep, headSeq: number | null]
  | readonly [typeof Result.elsewhere]
  | readonly [
      typeof Result.history,
      token: number,
      epoch: string,
      headSeq: number,
      trimmedSeq: number,
      recoveryState: string | null
    ]

const stored: Outcome = { _tag: "Stored" }
const elsewhere: Outcome = { _tag: "Elsewhere" }

const outcomeOf = (returned: Returned): Outcome => {
  if (returned === Result.stored) return stored
  switch (returned[0]) {
    case Result.outOfStep:
      return { _tag: "OutOfStep", headSeq: returned[1] }
    case Result.elsewhere:
      return elsewhere
    case Result.history: {
      const [, token, epoch, headSeq, trimmedSeq, recoveryState] = returned
      return { _tag: "Opened", token, history: { epoch, headSeq, trimmedSeq, recoveryState } }
    }
  }
}

/** Decodes the outcomes, in the order of the group. */
export const decode = ({ order }: Encoded, result: string): ReadonlyArray<Outcome> => {
  const outcomes: Array<Outcome> = []
  for (const [position, returned] of (JSON.parse(result) as ReadonlyArray<Returned>).entries()) {
    outcomes[order[position]!] = outcomeOf(returned)
  }
  return outcomes
}
