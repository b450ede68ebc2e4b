/** A client of AG-UI that follows a session through failures of the service. */
import { Effect, Option } from "effect"
import { clientOf } from "../AgUi/Fixture.ts"
import { outcomeOf } from "./Canonical.ts"
import type { Nodes } from "./Nodes.ts"

/** The codes of `RUN_ERROR` that say nothing of the turn: the run has to be joined again. */
const isOfStream = (code: unknown): boolean =>
  ["going_away", "internal", "rate_limited", "slow_consumer"].includes(String(code))

/** How an attempt fails where the service is killed. Others are refusals, or what the client finds wrong with a stream. */
const ofNetwork = /HTTP 5\d\d|fetch failed|terminated|other side closed|ECONN|socket hang up/i

/** How a run has ended for its client: its turn has, a person is asked, or the run was refused with a status. */
export type End = { readonly is: "over" | "asked" } | { readonly is: "refused"; readonly error: string }

export class AgUiClient {
  private readonly client
  /** How the turns ended, by the message of the user. */
  readonly outcomes = new Map<string, string>()

  constructor(
    private readonly nodes: Nodes,
    private readonly sessionId: string,
    headers: Readonly<Record<string, string>>
  ) {
    this.client = clientOf(`${nodes.url}/api/v1/ag-ui/echo`, { threadId: sessionId, headers })
  }

  get messages() {
    return this.client.agent.messages
  }

  /** Adds a message of the user and runs. */
  say(key: string, content: string): Effect.Effect<End> {
    const { agent } = this.client
    agent.messages = [...agent.messages, { id: key, role: "user", content }]
    return this.run(key, `run-${key}`)
  }

  /** Joins the run of a message. */
  join(key: string): Effect.Effect<End> {
    this.client.agent.pendingInterrupts = []
    return this.run(key, `run-${key}`)
  }

  /** Answers what the agent has asked in the run of a message. */
  answer(key: string, payload: unknown): Effect.Effect<End> {
    const resume = this.client.interrupts().map(({ id }) => ({ interruptId: id, status: "resolved" as const, payload }))
    return this.run(key, `run-${key}-answer`, resume)
  }

  /** Runs until the run has ended. It is repeated with the same id where the service is gone. */
  private run(
    key: string,
    runId: string,
    resume?: ReadonlyArray<{ readonly interruptId: string; readonly status: "resolved"; readonly payload: unknown }>
  ): Effect.Effect<End> {
    const { agent } = this.client
    const parameters = { runId, ...(resume && { resume: [...resume] }) }
    const attempt = Effect.suspend(() => {
      if (resume === undefined) agent.pendingInterrupts = []
      return this.client.run(parameters)
    })
    const ended = Effect.map(attempt, ({ failure, last }): Option.Option<End> => {
      this.nodes.note(`AG-UI ${runId} of ${this.sessionId}: ${failure ?? JSON.stringify(last)}`)
      if (failure !== undefined) {
        if (/HTTP 4\d\d/.test(failure)) return Option.some({ is: "refused", error: failure })
        if (!ofNetwork.test(failure)) throw new Error(failure)
        return Option.none()
      }
      if (last?.type === "RUN_ERROR") {
        if (isOfStream(last.code)) return Option.none()
        const { code, message } = last as unknown as { readonly code: string; readonly message: string }
        this.outcomes.set(key, outcomeOf("failed", { code, message }))
        return Option.some({ is: "over" })
      }
      // The client takes a clean end for success, so that there must be none without this.
      if (last?.type !== "RUN_FINISHED") throw new Error(`${runId} ended with ${JSON.stringify(last)}`)
      const { type } = last.outcome as { readonly type: string }
      if (type === "interrupt") return Option.some({ is: "asked" })
      this.outcomes.set(key, type === "cancelled" ? "interrupted" : "completed")
      return Option.some({ is: "over" })
    })
    return this.nodes.persist(ended)
  }
}
