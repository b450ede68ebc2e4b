/** The state of a conversation: turns in progress, open requests of the agent, and what the user may type. */
import { Effect, Either, Option } from "effect"
import type { EventBody } from "../../Gateway/Protocol.ts"
import { Changes } from "../../Simulator/Changes.ts"

export interface Open {
  readonly kind: "question" | "approval"
  readonly requestId: string
  readonly turnId: string | undefined
  readonly options: ReadonlyArray<unknown>
}

export interface ConversationState {
  readonly running: ReadonlySet<string>
  /** The newest turns that have ended, with their results; at most {@link maxEnded}. */
  readonly ended: ReadonlyMap<string, EventBody["type"]>
  /** Open requests, oldest first; at most the newest {@link maxOpen}. */
  readonly open: ReadonlyArray<Open>
}

export const nothing: ConversationState = { running: new Set(), ended: new Map(), open: [] }

const maxEnded = 256
const maxOpen = 64

const without = <A>(set: ReadonlySet<A>, item: A): ReadonlySet<A> => new Set([...set].filter(other => other !== item))

export const advance = (state: ConversationState, event: EventBody): ConversationState => {
  switch (event.type) {
    case "turn_started":
      return { ...state, running: new Set([...state.running, event.turnId]) }
    case "turn_completed":
    case "turn_errored":
    case "turn_interrupted":
      return {
        running: without(state.running, event.turnId),
        ended: new Map([...state.ended, [event.turnId, event.type] as const].slice(-maxEnded)),
        open: state.open.filter(({ turnId }) => turnId !== event.turnId)
      }
    case "question_requested":
    case "approval_requested": {
      const kind = event.type === "question_requested" ? "question" : "approval"
      const options = event.type === "question_requested" ? (event.options ?? []) : []
      const open: Open = { kind, requestId: event.requestId, turnId: event.turnId, options }
      return { ...state, open: [...state.open, open].slice(-maxOpen) }
    }
    case "question_resolved":
    case "approval_resolved":
      return settle(state, event.requestId)
    default:
      return state
  }
}

/** The state after a request was answered by this client. */
export const settle = (state: ConversationState, requestId: string): ConversationState => ({
  ...state,
  open: state.open.filter(open => open.requestId !== requestId)
})

/** The state after an answer failed: the request is open again, before all others. */
export const reopen = (state: ConversationState, open: Open): ConversationState => ({
  ...state,
  open: [open, ...state.open.filter(({ requestId }) => requestId !== open.requestId)]
})

const yes = /^(?:y|yes|ok|approve|approved|allow)$/iu
const no = /^(?:n|no|deny|denied)$/iu

/** The answer in a line, or what is wrong. An option can be given by its number. */
export const answerOf = ({ kind, options }: Open, line: string): Either.Either<unknown, string> => {
  const text = line.trim()
  if (kind === "approval") {
    if (yes.test(text)) return Either.right(true)
    return no.test(text) ? Either.right(false) : Either.left("Answer yes or no.")
  }
  const chosen = /^\d{1,4}$/.test(text) ? options[Number(text) - 1] : undefined
  return Either.right(chosen === undefined || options.includes(text) ? text : chosen)
}

export class State {
  requests = nothing
  /** The number of failures, for the exit code. */
  failures = 0
  /** Whether the next line may be typed. */
  isReading = false
  /** Ids of messages of this client, which are on the screen already. */
  readonly #sent = new Set<string>()
  readonly #changes = new Changes()

  /** The prompt; `undefined` while a line is executed, or during a turn that does not wait for an answer. */
  get prompt(): string | undefined {
    const { open, running } = this.requests
    if (!this.isReading || (running.size > 0 && open.length === 0)) return undefined
    return open.length > 0 ? "answer> " : "> "
  }

  sent(clientMessageId: string): void {
    this.#sent.add(clientMessageId)
  }

  /** Applies an event. Returns whether it must be shown. */
  apply(event: EventBody): boolean {
    this.requests = advance(this.requests, event)
    return !(event.type === "turn_started" && this.#sent.delete(event.clientMessageId ?? ""))
  }

  /** Wakes {@link settled}, after the event was shown. */
  notify(): void {
    this.#changes.notify()
  }

  /** Waits until a turn has ended, or the agent waits for an answer. A failed turn is counted. */
  settled(turnId: string): Effect.Effect<void> {
    const end = () => {
      const { ended, open } = this.requests
      return ended.has(turnId) || open.length > 0 ? Option.some(ended.get(turnId)) : Option.none()
    }
    return Effect.map(this.#changes.until(end), end => {
      if (end === "turn_errored") this.failures++
    })
  }
}
