/**
 * Converts requests into operations of the store: checks names, values, expiry and preconditions. A request of a tenant
 * is limited to its namespaces. The actor of the identity is recorded, regardless of the actor that the client names.
 */

import { Effect, Either } from "effect"
import * as Json from "../../base/Json/JsonText.ts"
import type { LimitsShape } from "../../base/Limits.ts"
import { BadRequest, Forbidden, PayloadTooLarge, PreconditionFailed, ServiceUnavailable } from "../../Http/ApiError.ts"
import type { IdentityShape } from "../../Http/Identity.ts"
import { etag, tenantOf } from "../Entry.ts"
import { type BatchOperation, defaultActor, endOfTime } from "../Requests.ts"
import type { Address, PreconditionFailed as StorePreconditionFailed, StoreUnavailable } from "../Store.ts"
import { type DeleteOperation, ifVersion, type Operation, type Precondition, type SetOperation } from "../Write.ts"

/** 400. The message names the part of the request, and what it must be. */
export const badRequest = (error: string): BadRequest => new BadRequest({ error })

/** 413. The message names the part of the request, its size and the limit. */
export const tooLarge = (error: string): PayloadTooLarge => new PayloadTooLarge({ error })

/** 503 as the specification words it. The reason is logged. */
export const unavailable = (error: StoreUnavailable): Effect.Effect<never, ServiceUnavailable> =>
  Effect.zipRight(
    Effect.logDebug("Store unavailable").pipe(Effect.annotateLogs("reason", error.reason)),
    Effect.fail(ServiceUnavailable.later("Store unavailable"))
  )

/** 503 with the time after which to retry. */
export const retryLater = (error: string, { retryAfterSeconds }: { readonly retryAfterSeconds: number }) =>
  ServiceUnavailable.later(error, retryAfterSeconds)

const currentState = (version: number | null): string =>
  version === null ? "the entry is absent" : `the entry is at version ${version}`

/** A refused PUT, DELETE or GET. ETag has the current version. */
export const entryRefused = (currentVersion: number | null): PreconditionFailed =>
  new PreconditionFailed({
    error: `Precondition failed: ${currentState(currentVersion)}`,
    headers: currentVersion === null ? {} : { etag: etag(currentVersion) }
  })

/** A refused batch. The message names the operation. */
export const batchRefused = ({
  currentVersion,
  index,
  isChangedBefore
}: StorePreconditionFailed): PreconditionFailed => {
  const before = isChangedBefore ? ", and an earlier operation of the batch changes it" : ""
  return new PreconditionFailed({
    error: `Precondition failed at operations[${index}]: ${currentState(currentVersion)}${before}`
  })
}

/** The sender of a request; `undefined` without authentication. */
export type Sender = IdentityShape | undefined

/** A checked part of a request, or the error. */
export type Checked<A> = Either.Either<A, BadRequest | Forbidden | PayloadTooLarge>

/** Why a name is invalid, in words for the client; `undefined` if it is valid. */
export const problemOfName = (kind: "namespace" | "key", name: string, maxBytes: number): string | undefined => {
  if (name === "") return `${kind} is empty; it takes 1 to ${maxBytes} bytes of UTF-8`
  // URL parsers remove these segments, so that an entry of this name could not be read.
  if (name === "." || name === "..") return `${kind} must not be "${name}"`
  return problemOfText(kind, name) ?? problemOfLength(kind, name, maxBytes)
}

/** Why a text cannot be stored or compared by every backend; `undefined` if it can. */
const problemOfText = (kind: string, text: string): string | undefined => {
  if (text.includes("\u0000")) return `${kind} must not contain U+0000`
  return text.isWellFormed() ? undefined : `${kind} must not contain a lone surrogate`
}

const problemOfLength = (kind: string, text: string, maxBytes: number): string | undefined => {
  const bytes = Buffer.byteLength(text)
  return bytes > maxBytes ? `${kind} has ${bytes} bytes of UTF-8; the limit is ${maxBytes}` : undefined
}

/** Why an actor is invalid; `undefined` if it is valid. An empty actor counts as none. */
export const problemOfActor = (actor: string, maxBytes: number): string | undefined =>
  problemOfText("actor", actor) ?? problemOfLength("actor", actor, maxBytes)

/** `at` is the path of the checked part in the request, as in `operations[3].`. */
const refuseIf = (problem: string | undefined, at = ""): Checked<void> =>
  problem === undefined ? Either.void : Either.left(badRequest(at + problem))

const notOfTenant = (tenant: string, at: string): Either.Either<never, Forbidden> =>
  Either.left(
    new Forbidden({
      error: `Forbidden: ${at}namespace is not tenant:${tenant}, nor does it begin with tenant:${tenant}/`
    })
  )

/** Checks the name of a namespace, and whether the sender may use it. */
export const namespace = (name: string, sender: Sender, limits: LimitsShape, at = ""): Checked<void> => {
  const problem = problemOfName("namespace", name, limits.namespaceBytes)
  if (problem !== undefined) return refuseIf(problem, at)
  const tenant = sender?.tenant
  return tenant === undefined || tenantOf(name) === tenant ? Either.void : notOfTenant(tenant, at)
}

/**
 * The tenant whose changes or namespaces a request asks for, `""` for all. A sender with a tenant may only ask for its
 * own.
 */
export const followedTenant = (asked: string, sender: Sender): Checked<string> => {
  const { tenant = asked } = sender ?? {}
  return Either.flatMap(text("tenant", asked), () =>
    asked === "" || asked === tenant
      ? Either.right(tenant)
      : Either.left(new Forbidden({ error: `Forbidden: tenant is not ${tenant}` }))
  )
}

/** Checks both names of an entry. */
export const address = (given: Address, sender: Sender, limits: LimitsShape, at = ""): Checked<void> => {
  const space = namespace(given.namespace, sender, limits, at)
  return Either.isLeft(space) ? space : refuseIf(problemOfName("key", given.key, limits.keyBytes), at)
}

/** A query parameter that is compared with names. Its length is not limited, because a longer text matches nothing. */
export const text = (name: string, given: string): Checked<void> => refuseIf(problemOfText(name, given))

/**
 * The actor to record: that of the sender's identity, or else the one that the client names. An actor of the identity
 * that cannot be recorded is a bug of the host, and a defect.
 */
export const actor = (given: string | undefined, sender: Sender, limits: LimitsShape): Checked<string> => {
  const identified = sender?.actor
  if (identified !== undefined && identified !== "") {
    const problem = problemOfActor(identified, limits.actorBytes)
    if (problem !== undefined) throw new Error(`The identity's ${problem}`)
    return Either.right(identified)
  }
  return given === undefined || given === ""
    ? Either.right(defaultActor)
    : Either.map(refuseIf(problemOfActor(given, limits.actorBytes)), () => given)
}

export const value = (given: unknown, limits: LimitsShape, at = ""): Checked<Json.JsonText> => {
  if (given === undefined) return Either.left(badRequest(`${at}value is missing`))
  const json = Json.fromUnknown(given, limits.jsonDepth)
  if (Either.isLeft(json)) return Either.left(badRequest(`${at}value: ${json.left.message}`))
  const bytes = Buffer.byteLength(json.right)
  return bytes <= limits.valueBytes
    ? Either.right(json.right)
    : Either.left(tooLarge(`${at}value has ${bytes} bytes of JSON; the limit is ${limits.valueBytes}`))
}

/** The lifetime of an entry as requests state it. */
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
    : Either.left(badRequest(`${at}ttlMs exceeds the maximum time, ${endOfTime}`))
}

/** The request headers with preconditions (RFC 9110, section 13). The entity tag of an entry is its version in quotes. */
export interface ConditionHeaders {
  readonly "if-match"?: string
  readonly "if-none-match"?: string
}

const tagList = /^(?:\s*,)*\s*(?:W\/)?"[^"]*"(?:\s*,(?:\s*(?:W\/)?"[^"]*")?)*\s*$/
const tag = /(W\/)?"([^"]*)"/g

/** The versions in a list of entity tags. A tag that is not a version matches nothing. */
const versionsIn = (header: string, weakToo: boolean): ReadonlyArray<number> => {
  const versions: Array<number> = []
  for (const [, weak, opaque] of header.matchAll(tag)) {
    if ((weak === undefined || weakToo) && /^[1-9]\d{0,15}$/.test(opaque!)) versions.push(Number(opaque))
  }
  return versions
}

const parseTags = (name: string, header: string, weakToo: boolean): Checked<"any" | ReadonlyArray<number>> => {
  if (header.trim() === "*") return Either.right("any")
  return tagList.test(header)
    ? Either.right(versionsIn(header, weakToo))
    : Either.left(badRequest(`${name} must be * or versions in quotes, such as "3", not ${header.slice(0, 64)}`))
}

/** The precondition of a request. Weak tags never match in If-Match, and match in If-None-Match (RFC 9110, 8.8.3.2). */
export const precondition = (headers: ConditionHeaders): Checked<Precondition | undefined> => {
  const ifMatch = headers["if-match"]
  const ifNoneMatch = headers["if-none-match"]
  if (ifMatch === undefined && ifNoneMatch === undefined) return Either.right(undefined)
  return Either.gen(function* () {
    return {
      ...(ifMatch === undefined ? {} : { match: yield* parseTags("If-Match", ifMatch, false) }),
      ...(ifNoneMatch === undefined ? {} : { noneMatch: yield* parseTags("If-None-Match", ifNoneMatch, true) })
    }
  })
}

export const set = (
  given: Address & Expiry & { readonly value: unknown },
  precondition: Precondition | undefined,
  sender: Sender,
  limits: LimitsShape,
  now: number,
  at = ""
): Checked<SetOperation> => {
  const { key, namespace } = given
  const named = address(given, sender, limits, at)
  if (Either.isLeft(named)) return Either.left(named.left)
  const json = value(given.value, limits, at)
  if (Either.isLeft(json)) return Either.left(json.left)
  const end = expiresAt(given, now, at)
  if (Either.isLeft(end)) return Either.left(end.left)
  const operation = { op: "set", namespace, key, value: json.right, expiresAt: end.right } as const
  return Either.right(precondition === undefined ? operation : { ...operation, precondition })
}

/** The operation of a delete. */
export const remove = (
  given: Address,
  precondition: Precondition | undefined,
  sender: Sender,
  limits: LimitsShape,
  at = ""
): Checked<DeleteOperation> => {
  const { key, namespace } = given
  const operation = { op: "delete", namespace, key } as const
  return Either.map(address(given, sender, limits, at), () =>
    precondition === undefined ? operation : { ...operation, precondition }
  )
}

/** The operation at `index` of a batch. */
export const ofBatch = (
  given: typeof BatchOperation.Type,
  index: number,
  sender: Sender,
  limits: LimitsShape,
  now: number
): Checked<Operation> => {
  const at = `operations[${index}].`
  const precondition = given.ifVersion === undefined ? undefined : ifVersion(given.ifVersion)
  return given.op === "delete"
    ? remove(given, precondition, sender, limits, at)
    : set(given, precondition, sender, limits, now, at)
}
