/** The limits of a connection and of the parts of a frame. */

/** Maximum bytes of a frame from a client. A larger frame closes the connection with 1009. */
export const frameBytes = 1024 * 1024

/** Maximum requests in flight of a connection. One more is answered `rate_limited`. */
export const requestsInFlight = 64

/** Maximum frames of a connection in a second. */
export const messagesPerSecond = 100

/** Maximum subscriptions of a connection. */
export const subscriptions = 128

/** Characters (UTF-16 code units) of a request's id. */
export const requestIdChars = 128

/** Characters of a session's id. */
export const sessionIdChars = 128

export { identifierChars } from "../../Upstream/PlatformEvent.ts"

/** Characters of names: agent types, tools, titles of sessions. */
export const nameChars = 256

/** Characters of a file's path. */
export const pathChars = 2048

/** Characters of a `clientMessageId`. */
export const clientMessageIdChars = 256

/** Names in `environment`, and in `secrets`. */
export const variables = 256

/** Bytes of `environment` and `secrets` together, names and values in UTF-8. */
export const environmentBytes = 64 * 1024

/** Bytes of `deployment` as JSON in UTF-8. */
export const deploymentBytes = 64 * 1024

/** Sessions in one answer to `list_sessions`. */
export const listedSessions = 200

/** The largest `limit` of events before a `seq`, and the default. */
export const pagedEvents = { most: 1000, default: 100 } as const

/** Bytes of the slice of a conversation in one frame, in UTF-8. */
export const conversationBytes = 256 * 1024

/** Characters of the cursor of a list. */
export const cursorChars = 4096

/** Levels of arrays and objects in a JSON value. Not every client can encode deeper ones. */
export const jsonDepth = 256

/** Members and elements of all objects and arrays in a frame from a client. */
export const jsonMembers = 65_536
