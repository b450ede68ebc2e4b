/**
 * Why a connection failed, for logs and for clients.
 */

/** The message of an error's innermost cause, for logs. */
export const reasonOf = (error: unknown, depth = 0): string => {
  if (typeof error !== "object" || error === null) return String(error)
  if ("cause" in error && error.cause !== undefined && depth < 5) return reasonOf(error.cause, depth + 1)
  const code = "code" in error && typeof error.code === "string" ? error.code : ""
  const message = "message" in error && typeof error.message === "string" ? error.message : ""
  return (message.includes(code) ? message : `${code} ${message}`).trim() || "no reason given"
}

/**
 * Codes by which Node, undici and OpenSSL name what went wrong. None of them has a lower-case letter. Each alternative
 * has a single way to match, so that a text is read in linear time.
 */
const code = /(?<![\w.-])(?:E[A-Z]{3}[A-Z_]*|(?:UND_ERR|ERR|CERT|DEPTH|UNABLE|SELF|HOSTNAME)_[A-Z_]+)(?![\w.-])/

/** Characters of a text that are searched for a code. */
const searched = 1000

/** The code in an error's message, if there is one. */
export const codeIn = (text: string): string | undefined => code.exec(text.slice(0, searched))?.[0]

/**
 * What clients are told of a failed connection: at most a code. The error's message may name hosts and ports of the
 * internal network.
 */
export const toldOf = (service: string, reason: string): string => {
  const found = codeIn(reason)
  return `No connection to the ${service}${found === undefined ? "" : ` (${found})`}`
}

/** Codes of a connection that could not be opened. */
const unreached =
  /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EAI_FAIL|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENETDOWN|EADDRNOTAVAIL|EPROTO|UND_ERR_CONNECT_TIMEOUT|ERR_TLS_[A-Z_]+|ERR_SSL_[A-Z_]+|(?:CERT|DEPTH|UNABLE|SELF|HOSTNAME)_[A-Z_]+)$/

/** Whether an error says that no connection was opened, as opposed to one that was lost. */
export const isUnreached = (reason: string): boolean =>
  unreached.test(codeIn(reason) ?? "") || reason.startsWith("connect ETIMEDOUT")
