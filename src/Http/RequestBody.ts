/** The bodies of requests: read up to a limit, and parsed as JSON in UTF-8. */

import { IncomingMessage } from "node:http"
import type { Socket } from "node:net"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Context, Effect, Either, Layer } from "effect"
import { MiB } from "../base/Bytes.ts"
import * as Direct from "../base/Direct.ts"
import { problemOf } from "../base/Json/JsonText.ts"
import * as ObjectReader from "../base/Json/ObjectReader.ts"
import { excess, illFormedAt, isObject, mayBeIllFormed, parseChecked } from "../base/Json/Parsing.ts"
import { PacedWork } from "../base/Time/PacedWork.ts"
import { GrowingBytes } from "../base/UnfinishedMessage.ts"
import { BadRequest, PayloadTooLarge, ServiceUnavailable, UnsupportedMediaType } from "./ApiError.ts"
import { HistoryBody, historyLimits, JsonBody, ObjectBody, objectLimits } from "./Contract.ts"
import { heldBodyOf } from "./Server/BodyBudget.ts"

/** The limits of bodies that keep members as text. */
export class BodyFormat extends Context.Tag("causeway/BodyFormat")<
  BodyFormat,
  {
    /** Maximum number of bytes of a body. */
    readonly bytes: number
    readonly shape: ObjectReader.ObjectShape
    readonly limits: ObjectReader.ReadLimits
  }
>() {}

type BodyError = BadRequest | PayloadTooLarge | ServiceUnavailable | UnsupportedMediaType

/** A kind of bodies. */
export interface Format {
  /** Maximum number of bytes of a body. */
  readonly bytes: number
  /** Parses the bytes of a body and their text without a byte order mark. */
  readonly parse: (body: Buffer, text: string) => Either.Either<unknown, BodyError>
}

const invalid = (problem: string): Either.Either<never, BodyError> =>
  Either.left(new BadRequest({ error: `Invalid request body: ${problem}` }))

/** Bodies that keep members as text. */
export const keptFormat = ({ bytes, limits, shape }: Context.Tag.Service<BodyFormat>): Format => ({
  bytes,
  parse: (body, text) => {
    if (body.length === 0) return Either.left(new BadRequest({ error: "The request body is empty; it must be JSON" }))
    try {
      return Either.right(ObjectReader.read(body, text, shape, limits))
    } catch (error) {
      const { message, overLimit } = problemOf(error)
      return overLimit ? Either.left(new PayloadTooLarge({ error: message })) : invalid(message)
    }
  }
})

/** Bodies that are objects. No message contains a part of a body, which may be a secret. */
const plainFormat = ({ bytes, levels, members }: { readonly [Name in keyof typeof objectLimits]: number }): Format => ({
  bytes,
  parse: (_, text) => {
    if (text === "") return Either.right({})
    // The body itself is one more level.
    const problem = excess(text, { levels: levels + 1, members })
    if (problem !== undefined) return Either.left(new PayloadTooLarge({ error: `The request body ${problem}` }))
    const parsed = parseChecked(text)
    if (Either.isLeft(parsed)) return invalid("it is not JSON")
    if (!isObject(parsed.right)) return invalid("it must be a JSON object")
    const place = mayBeIllFormed(text) ? illFormedAt(parsed.right) : undefined
    return place === undefined
      ? Either.right(parsed.right)
      : invalid(`${place.join(".").slice(0, 64)}: must be Unicode, and has a lone surrogate`)
  }
})

/** Bodies of {@link ObjectBody}, and of {@link HistoryBody}. */
export const objectFormat = plainFormat(objectLimits)
export const historyFormat = plainFormat(historyLimits)

/** Bytes of a refused body that are read and discarded, so that the client can read its answer. */
const discardAtMost = 64 * 1024 * 1024

const jsonType = /^application\/(?:[\w.-]+\+)?json$/i

/** Why a body is not JSON in UTF-8 by its headers. A body without a type counts as JSON. */
const problemOfType = (headers: IncomingMessage["headers"]): UnsupportedMediaType | undefined => {
  const encoding = headers["content-encoding"]
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    return new UnsupportedMediaType({
      error: `Content-Encoding ${encoding.slice(0, 64)} is not supported; send the body as it is`,
      headers: { "accept-encoding": "identity" }
    })
  }
  // Node decodes chunks, but no other transfer coding.
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

/** Discards the rest of a body. Disconnects a client that sends too much of it. */
const discard = (source: IncomingMessage): void => {
  let left = discardAtMost
  source.on("data", (chunk: Buffer) => {
    left -= chunk.length
    if (left < 0) source.destroy()
  })
  source.resume()
}

/** A body of up to this number of bytes that arrived in one piece is not counted. */
const small = 4096

const noRoom = (): ServiceUnavailable =>
  ServiceUnavailable.later("There is no room for this request body, as too many are being received")

const cutShort = (): BadRequest => new BadRequest({ error: "The request body ended before its time" })

/** Characters of a request's head, which is in memory while its body is received. */
const headLength = ({ rawHeaders, url = "" }: IncomingMessage): number => {
  let length = url.length
  for (const text of rawHeaders) length += text.length
  return length
}

/**
 * Reads a body and calls back once; the returned function stops reading.
 *
 * A body that is longer than the limit is answered at once. The rest of it is discarded, so that the connection stays
 * usable.
 */
const readBytes = (
  source: IncomingMessage,
  limit: number,
  done: (bytes: Either.Either<Buffer, BodyError>) => void
): (() => void) => {
  const declared = Number(source.headers["content-length"] ?? 0)
  if (declared > limit) {
    discard(source)
    done(Either.left(tooLarge(String(declared), limit)))
    return () => {}
  }
  const bytes = new GrowingBytes(limit)
  const heldBody = heldBodyOf(source.socket)
  let isOver = false
  const stop = (): void => {
    isOver = true
    source.off("data", onData)
    source.off("end", onEnd)
    source.off("error", onCut)
    source.off("close", onCut)
  }
  const refuse = (error: BodyError): void => {
    stop()
    bytes.take()
    heldBody?.release()
    discard(source)
    done(Either.left(error))
  }
  const refuseForRoom = (): void => refuse(noRoom())
  /** Counts a piece, unless it is a whole small body, which is parsed at once. */
  const count = (chunk: Buffer): void => {
    if (heldBody === undefined || (source.complete && bytes.length === 0 && chunk.length <= small)) return
    heldBody.add(chunk.length + (bytes.length === 0 ? headLength(source) : 0), refuseForRoom)
  }
  const onData = (chunk: Buffer): void => {
    if (bytes.length + chunk.length > limit) return refuse(tooLarge(`more than ${limit}`, limit))
    count(chunk)
    if (!isOver) bytes.add(chunk)
  }
  const onEnd = (): void => {
    stop()
    heldBody?.complete()
    done(Either.right(bytes.take()))
  }
  const onCut = (): void => {
    stop()
    heldBody?.release()
    done(Either.left(cutShort()))
  }
  source.on("data", onData)
  source.on("end", onEnd)
  source.on("error", onCut)
  source.on("close", onCut)
  return stop
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const byteOrderMark = "\ufeff"

const parse = (body: Buffer, format: Format): Either.Either<unknown, BodyError> => {
  let text: string
  try {
    text = utf8.decode(body)
  } catch {
    return Either.left(new BadRequest({ error: "The request body is not UTF-8" }))
  }
  return text.startsWith(byteOrderMark) ? format.parse(body.subarray(3), text.slice(1)) : format.parse(body, text)
}

/** Bodies of up to this number of bytes are parsed without queueing, which would take as long. */
const parsedAtOnce = 32 * 1024

/** Larger bodies are parsed a few in each iteration of the event loop. */
const parsing = new PacedWork(MiB)

/** Parses a body in its turn in the queue. If its client disconnects before that, the body is released. */
const parseQueued = (
  bytes: Buffer,
  socket: Socket,
  format: Format,
  done: (json: Either.Either<unknown, BodyError>) => void
): void => {
  const { length } = bytes
  let held: Buffer | undefined = bytes
  const forget = (): void => {
    held = undefined
  }
  socket.once("close", forget)
  parsing.run(length, () => {
    socket.off("close", forget)
    done(held === undefined || socket.destroyed ? Either.left(cutShort()) : parse(held, format))
  })
}

/**
 * Reads and parses the body of a request, and calls back once; the returned function stops reading. `arrived` is
 * called with the number of bytes of a body before they are parsed, which may take long.
 */
export const read = (
  source: IncomingMessage,
  format: Format,
  done: (json: Either.Either<unknown, BodyError>) => void,
  arrived: (bytes: number) => void = () => {}
): (() => void) => {
  const problem = problemOfType(source.headers)
  if (problem === undefined) {
    return readBytes(source, format.bytes, bytes => {
      if (Either.isLeft(bytes)) return done(Either.left(bytes.left))
      const { length } = bytes.right
      arrived(length)
      if (length <= parsedAtOnce) done(parse(bytes.right, format))
      else parseQueued(bytes.right, source.socket, format, done)
    })
  }
  discard(source)
  done(Either.left(problem))
  return () => {}
}

export const json = (source: unknown, format: Format): Effect.Effect<unknown, BodyError> =>
  source instanceof IncomingMessage
    ? Direct.async(resume => read(source, format, resume))
    : Effect.dieMessage("A request body can only be read from a server on node:http")

/** Replaces the body reader of the platform's server, which resets the connection at its limit instead of answering. */
const reading = (format: Format) =>
  Effect.map(HttpServerRequest.HttpServerRequest, request => {
    const body = json(request.source, format)
    // The platform's decoder chooses a reader by the type, which `read` checks itself.
    const headers = { ...request.headers, "content-type": "application/json" }
    return Object.create(request, {
      json: { value: body },
      headers: { value: headers }
    }) as HttpServerRequest.HttpServerRequest
  })

/** Reads the bodies of {@link JsonBody}. */
export const layer: Layer.Layer<JsonBody, never, BodyFormat> = Layer.effect(
  JsonBody,
  Effect.map(BodyFormat, format => reading(keptFormat(format)))
)

/** Reads the bodies of {@link ObjectBody} and {@link HistoryBody}. */
export const layerObject: Layer.Layer<ObjectBody | HistoryBody> = Layer.merge(
  Layer.succeed(ObjectBody, reading(objectFormat)),
  Layer.succeed(HistoryBody, reading(historyFormat))
)
