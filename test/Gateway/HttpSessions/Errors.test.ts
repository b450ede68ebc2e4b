/** The HTTP errors of the codes of the protocol. */
import { expect, it } from "vitest"
import { ErrorCode } from "../../../src/Gateway/Protocol/Codes.ts"
import { Refused } from "../../../src/Gateway/Requests.ts"
import { errorOf } from "../../../src/Gateway/Streams/Errors.ts"
import { statusOf } from "../../../src/Http/ApiError.ts"

/** The status of a code, and that of a failure whose request may succeed later. */
const statuses: Readonly<Record<ErrorCode, readonly [final: number, retryable: number]>> = {
  bad_request: [400, 400],
  unauthorized: [401, 401],
  forbidden: [403, 403],
  not_found: [404, 404],
  conflict: [409, 503],
  too_large: [413, 413],
  rate_limited: [503, 503],
  session_not_active: [409, 409],
  upstream_unavailable: [503, 503],
  upstream_error: [502, 502],
  timeout: [504, 504],
  inference_unavailable: [503, 503],
  internal: [500, 503]
}

it("each code has a status, and what may succeed later says when", () => {
  for (const code of ErrorCode.literals) {
    for (const retryable of [false, true]) {
      const error = errorOf(new Refused({ code, message: "why", retryable }))
      expect([code, statusOf(error), error.error, error.headers]).toEqual([
        code,
        statuses[code][retryable ? 1 : 0],
        "why",
        retryable ? { "retry-after": "1" } : {}
      ])
    }
  }
})
