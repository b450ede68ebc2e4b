/** The end of the change log, from which lists and the feed start. */
import { textOf } from "../../Client/Errors.ts"
import { epochOf } from "../../Client/Requests.ts"
import { requests } from "./Connection.ts"

export interface LogEnd {
  readonly lastSeq: number
  readonly epoch: string
}

const endOf = async (response: Response, limitBytes: number): Promise<LogEnd> => {
  const { lastSeq }: { readonly lastSeq: number } = JSON.parse(await textOf(response, limitBytes))
  return { lastSeq, epoch: epochOf(response) }
}

export const readEnd = (signal: AbortSignal): Promise<LogEnd> =>
  requests.value.ask({ path: "/changes", query: { after: Number.MAX_SAFE_INTEGER, limit: 1 } }, signal, endOf)
