/** The call for a backup of the store. */
import { detailsOf, InvalidResponse } from "../Errors.ts"
import type { CallOptions, Requests } from "../Requests.ts"
import { Lifetime } from "../Time.ts"
import { positionOf } from "./Position.ts"

/** Options of a backup. */
export interface BackupOptions extends CallOptions {
  /** The time limit of the copy, before the answer starts, in milliseconds; default 600,000. */
  readonly timeoutMs?: number
}

/** A copy of the whole store: a SQLite database. */
export interface StoreBackup {
  readonly bytes: number
  /** The SHA-256 of its bytes in hexadecimal digits, for the receiver to verify. */
  readonly sha256: string
  /** Its last change, and the epoch of its log. */
  readonly lastSeq: number
  readonly epoch: string
  /** Fails if the connection is lost before the end. Cancelling it ends the backup. */
  readonly content: ReadableStream<Uint8Array>
}

/** The SHA-256 of a header of RFC 9530, in hexadecimal digits. */
const digestIn = (header: string | null): string | undefined => {
  const [, base64] = /\bsha-256=:([A-Za-z0-9+/]{43}=):/.exec(header ?? "") ?? []
  return base64 && Array.from(atob(base64), byte => byte.charCodeAt(0).toString(16).padStart(2, "0")).join("")
}

/** Waits until a copy is complete. The time limit does not include its content. */
export const backup = async (
  requests: Requests,
  { signal, timeoutMs = 600_000 }: BackupOptions
): Promise<StoreBackup> => {
  const lifetime = new Lifetime(requests.clock, signal)
  const limit = lifetime.limit(timeoutMs, `There is no answer within ${timeoutMs} ms`)
  try {
    const response = await requests.open({ path: "/backup" }, lifetime.signal)
    limit.cancel()
    const { body, headers } = response
    const bytes = Number(headers.get("content-length") ?? Number.NaN)
    const sha256 = digestIn(headers.get("repr-digest"))
    if (body === null || sha256 === undefined || Number.isNaN(bytes)) {
      throw new InvalidResponse(detailsOf(response, "The answer is not a backup"))
    }
    const { epoch, lastSeq } = positionOf(response)
    return { bytes, sha256, lastSeq, epoch, content: body }
  } catch (error) {
    lifetime.end()
    throw error
  }
}
