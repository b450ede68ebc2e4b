/** Decoding of bytes from the user. */
import { Either } from "effect"

const decoder = new TextDecoder("utf-8", { fatal: true })

/** The text of bytes without a byte order mark at its start, or the problem. Invalid bytes are not replaced. */
export const decode = (bytes: Uint8Array): Either.Either<string, string> =>
  Either.try({ try: () => decoder.decode(bytes), catch: () => "it is not UTF-8" })
