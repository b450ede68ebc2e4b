/**
 * Upstream services as `/health` tells of them.
 */
import { Option } from "effect"
import type * as HealthProbe from "../Upstream/HealthProbe.ts"
import type { Dependency } from "./Report.ts"

/** Codes by which Node, undici and OpenSSL name what went wrong. None of them has a lower-case letter. */
const code = /(?<![\w.-])(?:E[A-Z]{3,}[A-Z_]*|(?:UND_ERR|ERR|CERT|DEPTH|UNABLE|SELF|HOSTNAME)_[A-Z_]+)(?![\w.-])/

const timeout = /^No answer within [\w ]+$/

/**
 * What a stranger may read of an error: whether it was a timeout, and else its code. The message itself may name
 * hosts and ports of the internal network.
 */
export const detailOf = ({ statusCode, error = "" }: Pick<HealthProbe.Health, "statusCode" | "error">): string => {
  if (statusCode !== undefined) return `GET /health answered ${statusCode}`
  if (timeout.test(error)) return error
  const found = code.exec(error)?.[0]
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
