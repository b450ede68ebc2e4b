/**
 * Upstream services as `/health` tells of them.
 */
import { Option } from "effect"
import { codeIn } from "../Upstream/ConnectionReason.ts"
import type * as HealthProbe from "../Upstream/HealthProbe.ts"
import type { Dependency } from "./Report.ts"

const timeout = /^No answer within [\w ]+$/

/**
 * What a stranger may read of an error: whether it was a timeout, and else its code. The message itself may name
 * hosts and ports of the internal network.
 */
export const detailOf = ({ statusCode, error = "" }: Pick<HealthProbe.Health, "statusCode" | "error">): string => {
  if (statusCode !== undefined) return `GET /health answered ${statusCode}`
  if (timeout.test(error)) return error
  const found = codeIn(error)
  return found === undefined ? "No connection" : `No connection (${found})`
}

/** An upstream that was probed; nothing where none is configured. */
export const dependency = (name: string, probed: Option.Option<HealthProbe.Health>): Option.Option<Dependency> =>
  Option.map(probed, ({ status, latencyMs, statusCode, error }) => ({
    name,
    status,
    latencyMs,
    ...(status === "ok"
      ? {}
      : { error: detailOf({ ...(statusCode === undefined ? {} : { statusCode }), error: error ?? "" }) })
  }))
