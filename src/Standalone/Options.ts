import type { CausewayOptions } from "./Interface.ts"

const isUrl = (text: unknown): boolean =>
  typeof text === "string" && /^https?:\/\//.test(text) && URL.canParse(text) && !text.endsWith("/")

const isDuration = (value: unknown): boolean => value === undefined || (Number.isFinite(value) && Number(value) >= 0)

/** What is wrong with options, which may come from JavaScript; `undefined` if they are valid. */
export const problemOf = (options: CausewayOptions): string | undefined => {
  const { gateway, gracePeriod, identity, log, prefix = "", retention, store } = options
  if (store !== "memory" && (typeof store?.directory !== "string" || store.directory === "")) {
    return 'store must be "memory" or { directory }'
  }
  if (typeof identity !== "function") return "identity must be a function"
  if (log !== undefined && typeof log !== "function") return "log must be a function"
  if (!/^(?:\/[A-Za-z0-9._~-]+)*$/.test(prefix)) {
    return `prefix must be a path such as /store, without a slash at its end, not ${JSON.stringify(prefix)}`
  }
  if (!isDuration(retention)) return `retention must be milliseconds, not ${String(retention)}`
  if (!isDuration(gracePeriod)) return `gracePeriod must be milliseconds, not ${String(gracePeriod)}`
  if (gateway === undefined) return undefined
  const { agentPlatform, idleTimeout, inference } = gateway
  if (!isDuration(idleTimeout)) return `gateway.idleTimeout must be milliseconds, not ${String(idleTimeout)}`
  if (!isUrl(agentPlatform?.url)) return `gateway.agentPlatform.url must be an http address without a slash at its end`
  return inference === undefined || isUrl(inference.url)
    ? undefined
    : `gateway.inference.url must be an http address without a slash at its end`
}
