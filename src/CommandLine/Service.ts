/** Requests of commands that the client does not have. */
import { Duration, Effect, Redacted } from "effect"
import { call } from "../Client/Effect/Run.ts"
import { requestsOf } from "../Client/KeyValue.ts"
import { json, type Reader, type Request } from "../Client/Requests.ts"
import type { CommandFailed } from "./CommandFailed.ts"
import type { Connection } from "./Connection.ts"
import * as Failure from "./Failure.ts"

/** A request to the service. */
export interface ServiceRequest extends Request {
  /** The prefix of the path; default `/api/v1`. */
  readonly prefix?: string
  /** An error status whose body is read like that of a success. */
  readonly accepts?: number
}

const accepting =
  (status: number): typeof globalThis.fetch =>
  async (...args) => {
    const response = await globalThis.fetch(...args)
    return response.status === status ? new Response(response.body, { headers: response.headers }) : response
  }

/** Sends a request and reads its answer. */
export const ask = <A>(
  connection: Connection,
  { accepts, prefix = "/api/v1", ...request }: ServiceRequest,
  read: Reader<A>
): Effect.Effect<A, CommandFailed> => {
  const requests = requestsOf({
    baseUrl: connection.url,
    token: Redacted.value(connection.token),
    prefix,
    timeoutMs: Duration.toMillis(connection.timeout),
    ...(accepts !== undefined && { fetch: accepting(accepts) })
  })
  return Effect.mapError(
    call(signal => requests.ask(request, signal, read)),
    Failure.of(connection)
  )
}

/** The end of the change log and its epoch. It fails at once if the service cannot be reached. */
export const endOfLog = (connection: Connection): Effect.Effect<{ lastSeq: number; epoch: string }, CommandFailed> => {
  const page = json<{ readonly lastSeq: number }>(({ lastSeq }) => Number.isSafeInteger(lastSeq))
  const query = { after: Number.MAX_SAFE_INTEGER, limit: 1 }
  return ask(connection, { path: "/changes", query }, async (response, limit, format) => ({
    lastSeq: (await page(response, limit, format)).lastSeq,
    epoch: response.headers.get("kv-epoch") ?? ""
  }))
}
