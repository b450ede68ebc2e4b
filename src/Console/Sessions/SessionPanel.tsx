/** One session: the conversation with the field for messages, and next to it the files or the events. */
import { useEffect, useMemo, useState } from "preact/hooks"
import type { Session, Sessions } from "../../Client/Client.ts"
import { canConverse } from "../Service/Connection.ts"
import { ofSession } from "../Service/Copies.ts"
import { messageOf } from "../Service/Failure.ts"
import { go, href } from "../Service/Navigation.ts"
import { Banner, Button, FailureNote, Form, IconButton } from "../Widgets/Controls.tsx"
import { CopyMenu, place } from "../Widgets/CopyMenu.tsx"
import { Confirm } from "../Widgets/Dialog.tsx"
import { PaneHead } from "../Widgets/Pane.tsx"
import { count, visible } from "../Widgets/Text.ts"
import { VirtualList } from "../Widgets/VirtualList.tsx"
import type { Conversation, Usage } from "./Conversation.ts"
import { draftFor } from "./Drafts.ts"
import { EventsPanel } from "./EventsPanel.tsx"
import { FilesPanel } from "./FilesPanel.tsx"
import { ItemView } from "./ItemView.tsx"
import { SessionFeed, toneOf } from "./SessionFeed.ts"
import { listed } from "./SessionList.ts"

interface ComposerProps {
  readonly feed: SessionFeed
  readonly sessions: Sessions
  readonly problem: string
  readonly onSend: () => void
}

const maxRows = 8

const placeholderOf = ({ isBusy, question, waiting }: Conversation): string => {
  if (question !== undefined) return "Answer the agent"
  if (waiting.length > 0) return "Message the agent; its requests are above"
  return isBusy ? "The agent is working" : "Message the agent"
}

/** The field for messages to the agent. While a question waits, the message is its answer. */
const Composer = ({ feed: { conversation, id }, onSend, problem, sessions }: ComposerProps) => {
  const draft = draftFor(sessions, id)
  const { value: text } = draft.text

  const send = () => {
    if (!draft.canBeSent.peek()) return
    onSend()
    void draft.send(conversation.question?.requestId)
  }

  return (
    <Form class="composer" onSubmit={() => send()}>
      <textarea
        aria-label="Message"
        dir="auto"
        placeholder={placeholderOf(conversation)}
        rows={Math.min(maxRows, text.split("\n").length)}
        value={text}
        onInput={event => draft.type(event.currentTarget.value)}
        onKeyDown={event => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
          event.preventDefault()
          send()
        }}
      />
      <Button text={draft.isSending.value ? "Sending…" : "Send"} look="primary" isDisabled={!draft.canBeSent.value} />
      <FailureNote text={draft.failure.value || problem} />
    </Form>
  )
}

type Side = "files" | "events"

const UsageMeter = ({ usage: { context, cost, input, model, output } }: { readonly usage: Usage }) => (
  <div class="usage" role="group" aria-label="Usage">
    <span>
      <b>{count(input)}</b> tokens in
    </span>
    <span>
      <b>{count(output)}</b> out
    </span>
    {cost > 0 && (
      <span>
        <b>${cost.toFixed(cost < 1 ? 4 : 2)}</b>
      </span>
    )}
    {model !== "" && <span>{visible(model)}</span>}
    {context !== undefined && (
      <label class="usage-context">
        Context
        <meter min={0} max={context.limit} low={context.limit * 0.7} high={context.limit * 0.9} value={context.used} />
        {context.percent < 1 ? "<1" : Math.round(context.percent)} %
      </label>
    )}
  </div>
)

/** The title. It is created during the session, and the list has it first. */
const titleOf = (session: Session | undefined): string =>
  session === undefined ? "" : (listed.value.find(({ id }) => id === session.id)?.title ?? session.title)

interface HeadProps {
  readonly feed: SessionFeed
  readonly sessions: Sessions
  readonly side: Side | undefined
  readonly onSide: (side: Side | undefined) => void
  readonly onFailure: (message: string) => void
}

const Head = ({ feed, onFailure, onSide, sessions, side }: HeadProps) => {
  const { id } = feed
  const { value: session } = feed.session
  const { isBusy, waiting } = feed.conversation
  const [isDeleting, setDeleting] = useState(false)
  const attempt = (work: Promise<unknown>) => {
    onFailure("")
    void work.catch((error: unknown) => onFailure(messageOf(error)))
  }
  const isRunning = session !== undefined && !["inactive", "deactivating", "error"].includes(session.state)
  return (
    <PaneHead title={titleOf(session) || id} hint={id} back={{ href: href("sessions"), label: "All sessions" }}>
      {waiting.length > 0 && <span class="badge warn">waiting for you</span>}
      {session !== undefined && <span class={`badge ${toneOf[session.state]}`}>{session.state}</span>}
      <CopyMenu copies={ofSession(place(), id)} />
      <span class="button-row">
        {canConverse.value && session !== undefined && (
          <>
            {isBusy && (
              <Button text="Interrupt" look="small" icon="stop" onClick={() => attempt(sessions.interrupt(id))} />
            )}
            {isRunning && !isBusy && (
              <Button text="Stop" look="small quiet" onClick={() => attempt(sessions.stop(id))} />
            )}
            <IconButton icon="trash" label="Delete session" tone="danger" onClick={() => setDeleting(true)} />
          </>
        )}
        {(["files", "events"] as const).map(name => (
          <Button
            text={name === "files" ? "Files" : "Events"}
            look="small"
            isPressed={side === name}
            onClick={() => onSide(side === name ? undefined : name)}
          />
        ))}
      </span>
      {isDeleting && (
        <Confirm
          title="Delete this session?"
          action="Delete"
          onClose={() => setDeleting(false)}
          onConfirm={() => {
            setDeleting(false)
            attempt(sessions.delete(id).then(() => go("sessions")))
          }}
        >
          This stops its agent and permanently deletes its history.
        </Confirm>
      )}
    </PaneHead>
  )
}

const roomForEvents = "(min-width: 1200px)"

export const SessionPanel = ({ id, sessions }: { readonly id: string; readonly sessions: Sessions }) => {
  const feed = useMemo(() => new SessionFeed(sessions, id), [sessions, id])
  useEffect(() => () => feed.close(), [feed])
  const [side, setSide] = useState<Side | undefined>(() => (matchMedia(roomForEvents).matches ? "events" : undefined))
  const [failure, setFailure] = useState("")
  const [sent, setSent] = useState(0)
  const revision = feed.revision.value
  const { conversation } = feed
  const { items, usage } = conversation

  if (feed.isDeleted.value) {
    return (
      <section class="pane item" aria-label="Session">
        <PaneHead title={id} isName back={{ href: href("sessions"), label: "All sessions" }} />
        <p class="empty">This session does not exist or was deleted.</p>
      </section>
    )
  }
  return (
    <section class="pane item" aria-label="Session">
      <Head feed={feed} sessions={sessions} side={side} onSide={setSide} onFailure={setFailure} />
      <UsageMeter usage={usage} />
      <Banner tone="bad" text={feed.problem.value} />
      <Banner tone="info" text={feed.isTrimmed.value ? "Older events have been removed." : ""} />
      <div class="session-body" data-side={side ?? "none"}>
        <div class="conversation">
          {items.length === 0 ? (
            <p class="empty">{feed.isSynced.value ? "No messages yet." : "Loading…"}</p>
          ) : (
            <VirtualList
              label="Conversation"
              role="log"
              count={items.length}
              rowHeight={64}
              isBusy={!feed.isSynced.value}
              isFollowing
              endRequest={sent}
              revision={revision}
              keyOf={index => items[index]?.seq ?? index}
              row={index =>
                items[index] && <ItemView item={items[index]} id={id} sessions={sessions} revision={revision} />
              }
            />
          )}
          {canConverse.value ? (
            <Composer feed={feed} sessions={sessions} problem={failure} onSend={() => setSent(sent + 1)} />
          ) : (
            <p class="pane-foot">This key is read-only.</p>
          )}
        </div>
        {side === "files" && (
          <FilesPanel
            id={id}
            sessions={sessions}
            changed={conversation.changedFiles}
            changes={conversation.fileChanges}
          />
        )}
        {side === "events" && (
          <EventsPanel
            log={feed.log}
            revision={revision}
            hasOlder={feed.hasOlder.value}
            onOlder={() => void feed.readOlder()}
          />
        )}
      </div>
    </section>
  )
}
