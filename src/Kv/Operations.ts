/**
 * From what a client asked to what the store is told: names, values and expiry checked against the limits.
 */
import { Either } from "effect"
import type { BadRequest, PayloadTooLarge } from "../Http/ApiError.ts"
import * as Json from "../Json/JsonText.ts"
import type { LimitsShape } from "../Limits.ts"
import { badRequest, tooLarge } from "./Errors.ts"
import { byteLength, problemOfActor, problemOfName, problemOfText } from "./Names.ts"
import { type BatchOperation, defaultActor, endOfTime } from "./Requests.ts"
import { type DeleteOperation, ifVersion, type Operation, type Precondition, type SetOperation } from "./Write.ts"

type Checked<A> = Either.Either<A, BadRequest | PayloadTooLarge>

const refuseIf = (problem: string | undefined): Checked<void> =>
  problem === undefined ? Either.void : Either.left(badRequest(problem))

/** `at` says where in the request the checked part stands, as in `operations[3].`. */
export const namespace = (name: string, limits: LimitsShape, at = ""): Checked<void> =>
  refuseIf(prefixed(at, problemOfName("namespace", name, limits.namespaceBytes)))

export const key = (name: string, limits: LimitsShape, at = ""): Checked<void> =>
  refuseIf(prefixed(at, problemOfName("key", name, limits.keyBytes)))

/** Where an entry is. */
export interface Address {
  readonly namespace: string
  readonly key: string
}

/** Checks both names of an entry. */
export const address = (given: Address, limits: LimitsShape, at = ""): Checked<void> => {
  const space = namespace(given.namespace, limits, at)
  return Either.isLeft(space) ? space : key(given.key, limits, at)
}

const prefixed = (at: string, problem: string | undefined): string | undefined =>
  problem === undefined ? undefined : at + problem

/** A query text that is compared with names; it needs no length, as nothing longer than a name can match. */
export const text = (name: string, given: string): Checked<void> => refuseIf(problemOfText(name, given))

/** The writer to record. */
export const actor = (given: string | undefined, limits: LimitsShape): Checked<string> =>
  given === undefined || given === ""
    ? Either.right(defaultActor)
    : Either.map(refuseIf(problemOfActor(given, limits.actorBytes)), () => given)

/** The text of a value, no longer than the limit. */
export const value = (given: unknown, limits: LimitsShape, at = ""): Checked<Json.JsonText> => {
  if (given === undefined) return Either.left(badRequest(`${at}value is missing`))
  const json = Json.fromUnknown(given, limits.jsonDepth)
  if (Either.isLeft(json)) return Either.left(badRequest(`${at}value: ${json.left.message}`))
  const bytes = byteLength(json.right)
  return bytes <= limits.valueBytes
    ? Either.right(json.right)
    : Either.left(tooLarge(`${at}value has ${bytes} bytes of JSON; the limit is ${limits.valueBytes}`))
}

/** How long an entry is to live, as a client says it. */
export interface Expiry {
  readonly ttlMs?: number
  readonly expiresAt?: number
}

/** The time at which an entry expires, in epoch milliseconds, or `null`. */
export const expiresAt = (given: Expiry, now: number, at = ""): Checked<number | null> => {
  if (given.ttlMs !== undefined && given.expiresAt !== undefined) {
    return Either.left(badRequest(`${at}ttlMs and expiresAt exclude each other`))
  }
  if (given.expiresAt !== undefined) {
    return given.expiresAt > now
      ? Either.right(given.expiresAt)
      : Either.left(badRequest(`${at}expiresAt must lie in the future: it is ${given.expiresAt}, and now is ${now}`))
  }
  if (given.ttlMs === undefined) return Either.right(null)
  return now + given.ttlMs <= endOfTime
    ? Either.right(now + given.ttlMs)
    : Either.left(badRequest(`${at}ttlMs reaches past the end of time, ${endOfTime}`))
}

/** A set as the store is told of it. */
export const set = (
  given: Address & Expiry & { readonly value: unknown },
  precondition: Precondition | undefined,
  limits: LimitsShape,
  now: number,
  at = ""
): Checked<SetOperation> => {
  const { key, namespace } = given
  const named = address(given, limits, at)
  if (Either.isLeft(named)) return Either.left(named.left)
  const json = value(given.value, limits, at)
  if (Either.isLeft(json)) return Either.left(json.left)
  const end = expiresAt(given, now, at)
  if (Either.isLeft(end)) return Either.left(end.left)
  const operation = { op: "set", namespace, key, value: json.right, expiresAt: end.right } as const
  return Either.right(precondition === undefined ? operation : { ...operation, precondition })
}

/** A delete as the store is told of it. */
export const remove = (
  given: Address,
  precondition: Precondition | undefined,
  limits: LimitsShape,
  at = ""
): Checked<DeleteOperation> => {
  const { key, namespace } = given
  const named = address(given, limits, at)
  if (Either.isLeft(named)) return Either.left(named.left)
  const operation = { op: "delete", namespace, key } as const
  return Either.right(precondition === undefined ? operation : { ...operation, precondition })
}

/** An operation of a batch, which stands there at `index`. */
export const ofBatch = (
  given: typeof BatchOperation.Type,
  index: number,
  limits: LimitsShape,
  now: number
): Checked<Operation> => {
  const at = `operations[${index}].`
  const precondition = given.ifVersion === undefined ? undefined : ifVersion(given.ifVersion)
  return given.op === "delete" ? remove(given, precondition, limits, at) : set(given, precondition, limits, now, at)
}
