import { detailsOf, InvalidResponse } from "../Errors.ts"
import { epochOf } from "../Requests.ts"

/** The headers of an answer: the position of the log at which it was read, and the cursor of the next page. */
export const positionOf = (response: Response) => {
  const lastSeq = Number(response.headers.get("kv-last-seq") ?? Number.NaN)
  if (Number.isNaN(lastSeq)) throw new InvalidResponse(detailsOf(response, "The header Kv-Last-Seq is missing"))
  const next = /<([^>]*)>; *rel="next"/.exec(response.headers.get("link") ?? "")?.[1]
  const cursor = next === undefined ? undefined : new URL(next, "http://localhost").searchParams.get("cursor")
  return { lastSeq, epoch: epochOf(response), cursor: cursor ?? undefined }
}
