/** Decodes the requests of clients. */
import { Either, Option, ParseResult, Schema } from "effect"
import { excess, illFormedAt, isObject, mayBeIllFormed } from "../../base/Json/Parsing.ts"
import { describe } from "../../Http/Contract.ts"
import type { ErrorCode } from "../Protocol/Codes.ts"
import { RequestId } from "../Protocol/Fields.ts"
import { frameBytes, jsonDepth, jsonMembers } from "../Protocol/Limits.ts"
import { Request, requestTypes } from "../Protocol/Request.ts"

/** Why a frame is not a request. The message is for the client. */
export interface InvalidRequest {
  /** The frame's id, if it could be read. */
  readonly id: string | undefined
  readonly code: ErrorCode
  readonly message: string
}

const frameShape = { levels: jsonDepth + 1, members: jsonMembers }

/** Maximum characters of a frame that is parsed only for its id. */
export const smallFrame = 16 * 1024

const knownTypes: ReadonlySet<unknown> = new Set(requestTypes)

const readId = Schema.decodeUnknownOption(RequestId)

const readRequest = Schema.decodeUnknownEither(Request, { errors: "all" })

const shorten = (text: string): string => (text.length > 64 ? `${text.slice(0, 64)}…` : text)

const problemOfType = (type: unknown): string | undefined => {
  if (type === undefined) return "type: is missing"
  if (typeof type !== "string") return "type: must be text"
  return knownTypes.has(type) ? undefined : `type: there is no request ${JSON.stringify(shorten(type))}`
}

const refuse = (message: string, id?: string, code: ErrorCode = "bad_request"): Either.Either<never, InvalidRequest> =>
  Either.left({ id, code, message })

/** The message of the parser is dropped because it repeats a part of the frame, which may contain secrets. */
const parse = Option.liftThrowable((text: string): unknown => JSON.parse(text))

/**
 * Decodes a frame from a client. Left is the reason why it is invalid. It never throws.
 *
 * The id of an invalid frame is returned for the answer, unless the frame is large and exceeds the limits of its shape.
 */
export const decodeRequest = (text: string): Either.Either<Request, InvalidRequest> => {
  // UTF-8 has at least one byte for each UTF-16 code unit.
  if (text.length > frameBytes) {
    return refuse(`The frame has at least ${text.length} bytes; the limit is ${frameBytes}`, undefined, "too_large")
  }
  // Checked before parsing, because a large frame of brackets takes long to parse. Its id is not known then.
  const problem = excess(text, frameShape)
  if (problem !== undefined && text.length > smallFrame) return refuse(`Invalid request: the frame ${problem}`)
  const parsed = parse(text)
  if (Option.isNone(parsed)) return refuse("Invalid request: the frame is not JSON")
  const frame = parsed.value
  if (!isObject(frame)) return refuse("Invalid request: the frame is not a JSON object")
  const id = Option.getOrUndefined(readId(frame.id))
  if (problem !== undefined) return refuse(`Invalid request: the frame ${problem}`, id)
  const wrongType = problemOfType(frame.type)
  if (wrongType !== undefined) return refuse(`Invalid request: ${wrongType}`, id)
  const illFormed = mayBeIllFormed(text) ? illFormedAt(frame) : undefined
  if (illFormed !== undefined) {
    return refuse(`Invalid request: ${shorten(illFormed.join("."))}: must be Unicode, and has a lone surrogate`, id)
  }
  const decoded = readRequest(frame)
  return Either.isRight(decoded)
    ? Either.right(decoded.right)
    : refuse(describe(ParseResult.ArrayFormatter.formatErrorSync(decoded.left)), id)
}
