/** The documentation of AG-UI in the OpenAPI document. */
import { operation, retryAfter } from "../../Http/OpenApi/Describe.ts"

const input = {
  threadId: "thread-1",
  runId: "run-1",
  state: {},
  messages: [{ id: "m-1", role: "user", content: "Why does the build fail?" }],
  tools: [],
  context: [],
  forwardedProps: {}
}

const stream = `data: {"type":"RUN_STARTED","threadId":"thread-1","runId":"run-1","protocolVersion":"1.0"}

data: {"type":"RUN_FINISHED","threadId":"thread-1","runId":"run-1","outcome":{"type":"success"}}

`

const errors = {
  403: {
    description: "The identity may not use the gateway, or the page's origin may not.",
    example: { error: "This origin may not connect" }
  },
  404: {
    description: "The thread was deleted, or there is no such run.",
    example: { error: 'There is no thread "thread-1"' }
  },
  409: {
    description: "The thread does not allow the run.",
    example: { error: 'messages[0]: the message "m-1" has other content, and a history is not rewritten' },
    headers: {}
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
    description: "The agent platform did not answer in time.",
    example: { error: "The session did not become active in time" }
  }
}

export const run = operation({
  operationId: "runAgent",
  summary: "Run an agent",
  description:
    "Starts or continues a turn, or joins a run again. The events end with `RUN_FINISHED` or `RUN_ERROR`. A lost connection does not stop the turn.",
  requests: { message: { summary: "A message", value: input } },
  answers: {
    ...errors,
    200: { description: "The events of the run.", example: stream },
    400: { example: { error: "Invalid request: threadId: must not be empty" } }
  }
})

export const stop = operation({
  operationId: "stopRun",
  summary: "Stop a run",
  description: "Asks the agent to end the turn of the run, which then ends with the outcome `cancelled`.",
  answers: { ...errors, 400: { example: { error: "Invalid request: runId: must not be empty" } } },
  never: [413]
})
