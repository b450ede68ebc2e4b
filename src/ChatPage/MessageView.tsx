/** A message and its parts. */
import type { DynamicToolUIPart } from "ai"
import type { Message, Metadata, Question } from "./Page.ts"

/** How a person answers the agent. */
export interface Answering {
  readonly approve: (id: string, approved: boolean) => void
  readonly answer: (text: string) => void
}

/** Absent where nothing can be answered: in earlier messages, and while the agent works. */
interface Answerable {
  readonly answering: Answering | null
}

const textOf = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value, undefined, 2))

const Value = ({ title, value }: { readonly title: string; readonly value: unknown }) =>
  value === undefined ? null : (
    <>
      <h3>{title}</h3>
      <pre>{textOf(value)}</pre>
    </>
  )

const stateNames: Readonly<Record<DynamicToolUIPart["state"], string>> = {
  "input-streaming": "writes its arguments",
  "input-available": "runs",
  "approval-requested": "needs an approval",
  "approval-responded": "was answered",
  "output-available": "done",
  "output-error": "failed",
  "output-denied": "denied"
}

const Tool = ({ answering, part }: Answerable & { readonly part: DynamicToolUIPart }) => {
  const isAsked = part.state === "approval-requested"
  const { approval } = part
  return (
    <details className="part" open={isAsked}>
      <summary>
        <b>{part.toolName}</b> {stateNames[part.state]}
      </summary>
      {approval?.requestReason === undefined ? null : <p>{approval.requestReason}</p>}
      <Value title="Arguments" value={part.input} />
      <Value title="Result" value={part.state === "output-available" ? part.output : undefined} />
      <Value title="Error" value={part.errorText} />
      {isAsked && answering !== null ? (
        <p className="answers">
          <button type="button" className="button primary" onClick={() => answering.approve(part.approval.id, true)}>
            Approve
          </button>
          <button type="button" className="button" onClick={() => answering.approve(part.approval.id, false)}>
            Deny
          </button>
        </p>
      ) : null}
    </details>
  )
}

const Asked = ({ answering, question }: Answerable & { readonly question: Question }) => (
  <section className="part" aria-label="Question">
    <p>
      <b>{question.title}</b>
    </p>
    {question.status === "pending" && answering !== null ? (
      <p className="answers">
        {(question.options ?? []).map(textOf).map(option => (
          <button key={option} type="button" className="button" onClick={() => answering.answer(option)}>
            {option}
          </button>
        ))}
      </p>
    ) : null}
  </section>
)

type AnyPart = Message["parts"][number]

const errors: ReadonlySet<string> = new Set(["data-error", "data-rate-limited", "data-session-failed"])

const messageOf = (data: unknown): string => {
  const { code, message } = data as { readonly code?: string; readonly message?: string }
  return message ?? code ?? "The agent has an error"
}

const Part = ({ answering, part }: Answerable & { readonly part: AnyPart }) => {
  switch (part.type) {
    case "text":
      return <p className="prose">{part.text}</p>
    case "reasoning":
      return (
        <details className="part">
          <summary>Thought</summary>
          <p className="prose">{part.text}</p>
        </details>
      )
    case "dynamic-tool":
      return <Tool part={part} answering={answering} />
    case "data-question":
      return <Asked question={part.data} answering={answering} />
    default:
      if (!("data" in part)) return null
      return errors.has(part.type) ? (
        <p className="bad">{messageOf(part.data)}</p>
      ) : (
        <details className="part">
          <summary>{part.type.slice("data-".length)}</summary>
          <pre>{textOf(part.data)}</pre>
        </details>
      )
  }
}

const Ending = ({ error, status }: Metadata) =>
  status === "failed" ? (
    <p className="bad">{error?.message ?? "The turn failed"}</p>
  ) : status === "interrupted" ? (
    <p className="muted">Stopped.</p>
  ) : null

export const MessageView = ({ answering, message }: Answerable & { readonly message: Message }) => (
  <article className={`said ${message.role}`} aria-label={message.role === "user" ? "You" : "Agent"}>
    {message.parts.map((part, index) => (
      // The parts of a message are only added to.
      // biome-ignore lint/suspicious/noArrayIndexKey: they have no other key
      <Part key={index} part={part} answering={answering} />
    ))}
    <Ending {...message.metadata} />
  </article>
)
