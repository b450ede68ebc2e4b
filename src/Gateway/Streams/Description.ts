/** What the documentation of all requests to agents has in common. */
import { retryAfter } from "../../Http/OpenApi/Describe.ts"

/** The errors of requests to the agent. */
export const errors = {
  401: {
    description: "The token is missing, invalid or expired.",
    headers: {
      "WWW-Authenticate": {
        description: "The scheme to use.",
        required: true,
        schema: { type: "string" as const },
        example: "Bearer"
      }
    },
    example: { error: "The token has expired" }
  },
  403: {
    description: "The identity may not use the gateway, or the page's origin may not.",
    example: { error: "This origin may not connect" }
  },
  413: {
    description: "The body, or what it contains, is over a limit.",
    example: { error: "The request body has 1048577 bytes; the limit is 1048576" }
  },
  502: { description: "The agent platform failed.", example: { error: "The agent platform answered 500" } },
  503: {
    description: "The service or the agent platform is unavailable, or has no capacity for this tenant at present.",
    headers: { "Retry-After": retryAfter(1) },
    example: { error: "The agent platform is unavailable" }
  },
  504: {
    description: "The agent platform, or the node of the session, did not answer in time.",
    example: { error: "The session did not become active in time" }
  }
}

/** Events as the body of an answer. */
export const eventStreamOf = (...data: ReadonlyArray<object | string>): string =>
  data.map(each => `data: ${typeof each === "string" ? each : JSON.stringify(each)}\n\n`).join("")
