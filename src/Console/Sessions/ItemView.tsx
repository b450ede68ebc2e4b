/** One item of a conversation. */
import { useRef, useState } from "preact/hooks"
import type { Sessions } from "../../Client/Client.ts"
import { canConverse } from "../Service/Connection.ts"
import { messageOf } from "../Service/Failure.ts"
import { Button, FailureNote, Form, Icon } from "../Widgets/Controls.tsx"
import { count, cut, dateAndTime, time, visible, visibleText } from "../Widgets/Text.ts"
import { VisibleLines, VisibleText } from "../Widgets/VisibleText.tsx"
import type { AgentText, Inquiry, Item, Notice, TerminalItem, ToolCall } from "./Items.ts"

/** Longer texts are cut until the user asks for all: the layout of a million characters takes seconds. */
const longText = 20_000
const shownOfLong = 8000

/** Which items are unfolded, by session and `seq`. Rows that leave the view lose their own state. */
const unfolded = new Map<string, boolean>()
const maxUnfolded = 1000

const useUnfolded = (key: string, initial: boolean): readonly [boolean, (isUnfolded: boolean) => void] => {
  const [isUnfolded, set] = useState(unfolded.get(key) ?? initial)
  return [
    isUnfolded,
    value => {
      if (unfolded.size >= maxUnfolded) unfolded.clear()
      unfolded.set(key, value)
      set(value)
    }
  ]
}

const fence = /^```[^\n]*\n([\s\S]*?)(?:^```[ \t]*$|(?![\s\S]))/gm

const Paragraph = ({ text }: { readonly text: string }) => (
  <p dir="auto">
    <VisibleText text={text} />
  </p>
)

const Prose = ({ text }: { readonly text: string }) => {
  const parts: Array<preact.JSX.Element> = []
  let from = 0
  for (const match of text.matchAll(fence)) {
    if (match.index > from) parts.push(<Paragraph text={text.slice(from, match.index).trim()} />)
    parts.push(<VisibleLines text={match[1] ?? ""} />)
    from = match.index + match[0].length
  }
  if (from < text.length) parts.push(<Paragraph text={text.slice(from).trim()} />)
  return <div class="prose">{parts}</div>
}

const LongText = ({ text }: { readonly text: string }) => {
  const [isWhole, setWhole] = useState(false)
  if (text.length <= longText || isWhole) return <Prose text={text} />
  return (
    <>
      <Button
        text={`Show ${count(text.length - shownOfLong)} earlier characters`}
        look="small"
        onClick={() => setWhole(true)}
      />
      <Prose text={`…${text.slice(-shownOfLong)}`} />
    </>
  )
}

interface SaidProps {
  readonly at: number
  readonly by: "user" | "agent"
  readonly name?: string
  readonly text: string
  readonly isDone?: boolean
}

const Said = ({ at, by, isDone = true, name = "", text }: SaidProps) => (
  <article class={`said ${by}`} aria-busy={by === "agent" ? !isDone : undefined}>
    <header>
      <bdi>{name === "" ? by : visible(name)}</bdi> <time title={dateAndTime(at)}>{time(at)}</time>
    </header>
    <LongText text={text} />
  </article>
)

interface FoldProps {
  readonly id: string
  readonly icon: "thought" | "tool"
  readonly title: string
  readonly note: string
  readonly tone?: string
  readonly children: preact.ComponentChildren
}

const Fold = ({ children, icon, id, note, title, tone = "" }: FoldProps) => {
  const [isOpen, setOpen] = useUnfolded(id, false)
  return (
    <div class={`said fold ${tone}`}>
      <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <Icon name={icon} />
        <b>{visible(title)}</b>
        <span class="fold-note">{visibleText(note)}</span>
        <span class="fold-mark">
          <Icon name="right" />
        </span>
      </button>
      {isOpen && <div class="fold-body">{children}</div>}
    </div>
  )
}

const ThoughtView = ({ id, isDone, text }: AgentText & { readonly id: string }) => (
  <Fold id={id} icon="thought" title={isDone ? "Thought" : "Thinking…"} note={cut(text.replaceAll("\n", " "), 120)}>
    <LongText text={text} />
  </Fold>
)

const ToolView = ({ args, id, name, outcome, progress }: ToolCall & { readonly id: string }) => {
  const state = outcome === undefined ? (progress === "" ? "running…" : progress) : outcome.isError ? "failed" : "done"
  return (
    <Fold id={id} icon="tool" title={name} note={state} {...(outcome?.isError && { tone: "failed" })}>
      <h4>Arguments</h4>
      <VisibleLines text={args === "" ? "none" : args} />
      {outcome !== undefined && (
        <>
          <h4>{outcome.isError ? "Error" : "Result"}</h4>
          <VisibleLines text={outcome.text === "" ? "none" : outcome.text} />
        </>
      )}
    </Fold>
  )
}

const labelOf = (option: unknown): string => {
  if (typeof option === "string") return option
  if (typeof option === "object" && option !== null && "label" in option && typeof option.label === "string") {
    return option.label
  }
  return JSON.stringify(option)
}

interface RepliesProps {
  readonly inquiry: Inquiry
  readonly isDisabled: boolean
  readonly onReply: (given: unknown) => void
}

const Replies = ({ inquiry: { kind, options }, isDisabled, onReply }: RepliesProps) => {
  const [typed, setTyped] = useState("")
  if (kind === "approval") {
    const decide = (approved: boolean) => ({ isDisabled, onClick: () => onReply({ approved }) })
    return (
      <div class="actions">
        <Button text="Approve" look="primary" icon="check" {...decide(true)} />
        <Button text="Deny" look="danger" {...decide(false)} />
      </div>
    )
  }
  return (
    <Form class="actions" onSubmit={() => typed.trim() !== "" && onReply(typed)}>
      {options.map(option => (
        <Button text={visibleText(labelOf(option))} isDisabled={isDisabled} onClick={() => onReply(option)} />
      ))}
      <input
        aria-label="Another answer"
        placeholder={options.length === 0 ? "Answer" : "Another answer"}
        value={typed}
        disabled={isDisabled}
        onInput={event => setTyped(event.currentTarget.value)}
      />
      <Button text="Answer" isDisabled={isDisabled || typed.trim() === ""} />
    </Form>
  )
}

const InquiryView = ({ id, inquiry, sessions }: Omit<Props, "item"> & { readonly inquiry: Inquiry }) => {
  const { answer, kind, requestId, text, title } = inquiry
  const [isSent, setSent] = useState(false)
  const [failure, setFailure] = useState("")
  const box = useRef<HTMLElement>(null)
  const reply = async (given: unknown) => {
    setSent(true)
    setFailure("")
    // The answer removes the focused button.
    box.current?.focus()
    try {
      await sessions.answer(id, requestId, given)
    } catch (error) {
      setSent(false)
      setFailure(messageOf(error))
    }
  }
  return (
    <section
      ref={box}
      class="said inquiry"
      tabIndex={-1}
      data-open={answer === undefined}
      aria-label={kind === "question" ? "Question" : "Approval"}
    >
      <header>{kind === "question" ? "The agent asks" : "The agent wants to"}</header>
      <h3 dir="auto">
        <VisibleText text={title} />
      </h3>
      {text !== "" && <VisibleLines text={text} />}
      {answer !== undefined && (
        <p class="muted">
          Answer:{" "}
          <b>
            <VisibleText text={answer} />
          </b>
        </p>
      )}
      {answer === undefined && canConverse.value && (
        <Replies inquiry={inquiry} isDisabled={isSent} onReply={given => void reply(given)} />
      )}
      <FailureNote text={failure} />
    </section>
  )
}

/** The lines of a terminal end with a carriage return, which moves the cursor back and hides nothing there. */
const linesOf = (output: string): string => output.slice(-shownOfLong).replace(/(?<!\r)\r+\n/g, "\n")

const TerminalView = ({ command, exit, text }: TerminalItem) => (
  <div class="said terminal">
    <header>
      <code>
        $ <VisibleText text={command} />
      </code>{" "}
      <span class="muted">{exit === undefined ? "running…" : visible(exit)}</span>
    </header>
    {text !== "" && <VisibleLines text={linesOf(text)} />}
  </div>
)

const NoticeView = ({ text, title, tone }: Notice) => (
  <p class={`said notice ${tone}`}>
    <b>{visible(title)}</b>{" "}
    <span>
      <VisibleText text={cut(text, 2000)} />
    </span>
  </p>
)

interface Props {
  readonly item: Item
  readonly id: string
  readonly sessions: Sessions
  /** Increases when events are received. Items are changed in place. */
  readonly revision: number
}

export const ItemView = ({ id, item, revision, sessions }: Props) => {
  const place = `${id} ${item.seq}`
  switch (item.kind) {
    case "user":
      return <Said by="user" name={item.by} at={item.at} text={item.text} />
    case "text":
      return <Said by="agent" at={item.at} text={item.text} isDone={item.isDone} />
    case "thought":
      return <ThoughtView {...item} id={place} />
    case "tool":
      return <ToolView {...item} id={place} />
    case "question":
    case "approval":
      return <InquiryView inquiry={item} id={id} sessions={sessions} revision={revision} />
    case "terminal":
      return <TerminalView {...item} />
    case "notice":
      return <NoticeView {...item} />
  }
}
