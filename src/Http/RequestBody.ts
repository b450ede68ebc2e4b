/**
 * Request bodies: read up to a limit, decoded as UTF-8, parsed as JSON with values kept as text.
 */
import { IncomingMessage } from "node:http"
import type { Socket } from "node:net"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Effect, Either, Layer } from "effect"
import { GrowingBytes } from "../GrowingBytes.ts"
import { isSpace, openBracket } from "../Json/Codes.ts"
import { DepthGuard } from "../Json/DepthGuard.ts"
import { nestedDeeper, noArray, shellLevels } from "../Json/JsonReader.ts"
import { parseBody } from "../Json/ParseBody.ts"
import { Limits, type LimitsShape } from "../Limits.ts"
import { BadRequest, PayloadTooLarge, ServiceUnavailable, UnsupportedMediaType } from "./ApiError.ts"
import { JsonBody } from "./JsonBody.ts"
import * as ParseQueue from "./ParseQueue.ts"
import { receiptOf } from "./Server/Intake.ts"

type BodyError = BadRequest | PayloadTooLarge | ServiceUnavailable | UnsupportedMediaType

/** What is read and thrown away behind an oversized body, so that the client gets to read its answer. */
const discardAtMost = 64 * 1024 * 1024

const jsonType = /^application\/(?:[\w.-]+\+)?json$/i

/** What keeps a body from being JSON in UTF-8, by its headers; a body without a type is taken for JSON. */
const problemOfType = (headers: IncomingMessage["headers"]): UnsupportedMediaType | undefined => {
  const encoding = headers["content-encoding"]
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    return new UnsupportedMediaType({
      error: `Content-Encoding ${encoding.slice(0, 64)} is not supported; send the body as it is`,
      headers: { "accept-encoding": "identity" }
    })
  }
  // Node takes chunks apart, and leaves any coding below them as it is.
  const transfer = headers["transfer-encoding"]
  if (transfer !== undefined && transfer.toLowerCase() !== "chunked") {
    return new UnsupportedMediaType({ error: `Transfer-Encoding ${transfer.slice(0, 64)} is not supported` })
  }
  const type = headers["content-type"]
  if (type === undefined) return undefined
  const [essence = "", ...parameters] = type.split(";").map(part => part.trim())
  if (!jsonType.test(essence)) {
    return new UnsupportedMediaType({ error: `The body must be application/json, not ${type.slice(0, 64)}` })
  }
  const charset = parameters.find(parameter => /^charset=/i.test(parameter))
  return charset === undefined || /^charset="?utf-?8"?$/i.test(charset)
    ? undefined
    : new UnsupportedMediaType({ error: `The body must be in UTF-8, not ${charset.slice(8, 72)}` })
}

const tooLarge = (figure: string, limit: number): PayloadTooLarge =>
  new PayloadTooLarge({ error: `The request body has ${figure} bytes; the limit is ${limit}` })

/** Throws the rest of a body away; a client that never comes to an end is cut off. */
const discard = (source: IncomingMessage): void => {
  let left = discardAtMost
  source.on("data", (chunk: Buffer) => {
    left -= chunk.length
    if (left < 0) source.destroy()
  })
  source.resume()
}

/** Bytes up to which a body that came whole is not counted among those that are held. */
const small = 4096

/** A client that comes back in a second finds the bodies gone that were answered in the meantime. */
const noRoom = (): ServiceUnavailable =>
  new ServiceUnavailable({
    error: "There is no room for this request body, as too many are being received",
    headers: { "retry-after": "1" }
  })

const cutShort = (): BadRequest => new BadRequest({ error: "The request body ended before its time" })

/** Characters of a request's head, which is held for as long as its body is on its way. */
const headLength = ({ rawHeaders, url = "" }: IncomingMessage): number => {
  let length = url.length
  for (const text of rawHeaders) length += text.length
  return length
}

const malformed = (message: string): BadRequest => new BadRequest({ error: `Invalid request body: ${message}` })

/**
 * Reads a body within the limits and calls back once; the function returned stops the reading.
 *
 * One that is longer or nested deeper is answered at once, and what still comes is thrown away, within bounds, so that
 * the connection stays usable.
 */
const readBytes = (
  source: IncomingMessage,
  { bodyBytes: limit, jsonDepth }: LimitsShape,
  done: (bytes: Either.Either<Buffer, PayloadTooLarge | BadRequest | ServiceUnavailable>) => void
): (() => void) => {
  const declared = Number(source.headers["content-length"] ?? 0)
  if (declared > limit) {
    discard(source)
    done(Either.left(tooLarge(String(declared), limit)))
    return () => {}
  }
  const bytes = new GrowingBytes(limit)
  const receipt = receiptOf(source.socket)
  let isOver = false
  // A body of one piece is parsed at once, which checks the same.
  let guard: DepthGuard | undefined
  const stop = (): void => {
    isOver = true
    source.off("data", onData)
    source.off("end", onEnd)
    source.off("error", onCut)
    source.off("close", onCut)
  }
  const refuse = (error: PayloadTooLarge | BadRequest | ServiceUnavailable): void => {
    stop()
    bytes.take()
    receipt?.release()
    discard(source)
    done(Either.left(error))
  }
  /** What is wrong with a body of several pieces, as far as it can be told before it is whole. */
  const problemWith = (chunk: Buffer): string | undefined => {
    if (bytes.length === 0) return undefined
    if (guard === undefined) {
      if (bytes.view.find(code => !isSpace(code)) === openBracket) return noArray
      guard = new DepthGuard(jsonDepth + shellLevels)
      if (!guard.admits(bytes.view)) return nestedDeeper(jsonDepth)
    }
    return guard.admits(chunk) ? undefined : nestedDeeper(jsonDepth)
  }
  const refuseForRoom = (): void => refuse(noRoom())
  /** Counts a piece, unless it is the whole of a small body: that is parsed at once. */
  const count = (chunk: Buffer): void => {
    if (receipt === undefined || (source.complete && bytes.length === 0 && chunk.length <= small)) return
    receipt.add(chunk.length + (bytes.length === 0 ? headLength(source) : 0), refuseForRoom)
  }
  const onData = (chunk: Buffer): void => {
    if (bytes.length + chunk.length > limit) return refuse(tooLarge(`more than ${limit}`, limit))
    const problem = problemWith(chunk)
    if (problem !== undefined) return refuse(malformed(problem))
    count(chunk)
    if (!isOver) bytes.add(chunk)
  }
  const onEnd = (): void => {
    stop()
    receipt?.complete()
    done(Either.right(bytes.take()))
  }
  const onCut = (): void => {
    stop()
    receipt?.release()
    done(Either.left(cutShort()))
  }
  source.on("data", onData)
  source.on("end", onEnd)
  source.on("error", onCut)
  source.on("close", onCut)
  return stop
}

const utf8 = new TextDecoder("utf-8", { fatal: true })

/** The JSON of a body already read; an empty one is no JSON. */
export const parse = (bytes: Uint8Array, limits: LimitsShape): Either.Either<unknown, BodyError> => {
  if (bytes.length === 0) return Either.left(new BadRequest({ error: "The request body is empty; it must be JSON" }))
  let text: string
  try {
    text = utf8.decode(bytes)
  } catch {
    return Either.left(new BadRequest({ error: "The request body is not UTF-8" }))
  }
  // A byte for each character: it is ASCII, and its bytes are its code units.
  const codes = text.length === bytes.length ? bytes : undefined
  return Either.mapLeft(parseBody(text, limits.jsonDepth, limits.batchOperations, codes, limits.valueBytes), problem =>
    problem.overLimit ? new PayloadTooLarge({ error: problem.message }) : malformed(problem.message)
  )
}

/** Parses when it is this body's turn. What a client leaves behind is let go of before that. */
const parseInTurn = (
  bytes: Uint8Array,
  socket: Socket,
  limits: LimitsShape,
  done: (json: Either.Either<unknown, BodyError>) => void
): void => {
  const { length } = bytes
  let held: Uint8Array | undefined = bytes
  const forget = (): void => {
    held = undefined
  }
  socket.once("close", forget)
  ParseQueue.take(length, () => {
    socket.off("close", forget)
    done(held === undefined || socket.destroyed ? Either.left(cutShort()) : parse(held, limits))
  })
}

/**
 * Reads and parses the body of a request, and calls back once; the function returned stops the reading. `arrived` is
 * told of the bytes of a body before they are parsed, which may take long.
 */
export const read = (
  source: IncomingMessage,
  limits: LimitsShape,
  done: (json: Either.Either<unknown, BodyError>) => void,
  arrived: (bytes: number) => void = () => {}
): (() => void) => {
  const problem = problemOfType(source.headers)
  if (problem === undefined) {
    return readBytes(source, limits, bytes => {
      if (Either.isLeft(bytes)) return done(Either.left(bytes.left))
      const { length } = bytes.right
      arrived(length)
      if (length <= ParseQueue.small) done(parse(bytes.right, limits))
      else parseInTurn(bytes.right, source.socket, limits, done)
    })
  }
  discard(source)
  done(Either.left(problem))
  return () => {}
}

const json = (source: unknown, limits: LimitsShape): Effect.Effect<unknown, BodyError> =>
  source instanceof IncomingMessage
    ? Effect.async(resume => Effect.sync(read(source, limits, resume)))
    : Effect.dieMessage("A request body can only be read from a server on node:http")

/** Puts our reader in the place of the platform's, which has no limit that ends in an answer. */
export const layer: Layer.Layer<JsonBody> = Layer.effect(
  JsonBody,
  Effect.map(Limits, limits =>
    Effect.map(HttpServerRequest.HttpServerRequest, request => {
      const body = json(request.source, limits)
      // The decoder chooses how to read by the type; that JSON is all there is to choose is checked by the reader.
      const headers = { ...request.headers, "content-type": "application/json" }
      return Object.create(request, {
        json: { value: body },
        headers: { value: headers }
      }) as HttpServerRequest.HttpServerRequest
    })
  )
)
