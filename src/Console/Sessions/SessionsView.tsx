/** Sessions with agents: their list, and one of them. */
import { useEffect, useState } from "preact/hooks"
import type { Session, Sessions } from "../../Client/Client.ts"
import {
  canConverse,
  isGatewayConnected,
  openSessions,
  sessions,
  sessionsRefusal,
  user,
  useSessionToken
} from "../Service/Connection.ts"
import { messageOf } from "../Service/Failure.ts"
import { go, href, route } from "../Service/Route.ts"
import { Dialog } from "../Widgets/Dialog.tsx"
import { Icon } from "../Widgets/Icon.tsx"
import { SecretForm } from "../Widgets/SecretForm.tsx"
import { ago, count } from "../Widgets/Text.ts"
import { VirtualList } from "../Widgets/VirtualList.tsx"
import { isListRead, listed, listProblem, refreshSessions } from "./SessionList.ts"
import { SessionPanel } from "./SessionPanel.tsx"
import { toneOf } from "./Tone.ts"

const everyMs = 4000

const NewSession = ({ onClose, sessions }: { readonly sessions: Sessions; readonly onClose: () => void }) => {
  const [agentType, setAgentType] = useState("echo")
  const [title, setTitle] = useState("")
  const [failure, setFailure] = useState("")
  const [isBusy, setBusy] = useState(false)

  const create = async () => {
    setBusy(true)
    try {
      const options = title.trim() === "" ? {} : { title: title.trim() }
      const { id } = await sessions.create(agentType.trim(), options)
      onClose()
      go("sessions", id)
    } catch (error) {
      setFailure(messageOf(error))
      setBusy(false)
    }
  }

  return (
    <Dialog title="New session" onClose={onClose}>
      <form
        class="dialog-body"
        onSubmit={event => {
          event.preventDefault()
          void create()
        }}
      >
        <label class="field">
          Agent type
          <input value={agentType} onInput={event => setAgentType(event.currentTarget.value)} />
        </label>
        <label class="field">
          Title
          <input
            value={title}
            placeholder="made from the first message"
            onInput={event => setTitle(event.currentTarget.value)}
          />
        </label>
        {failure !== "" && (
          <p class="note bad" role="alert">
            {failure}
          </p>
        )}
        <div class="actions">
          <button type="submit" class="button primary" disabled={isBusy || agentType.trim() === ""}>
            Create
          </button>
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  )
}

const SessionRow = ({ isPresent, session }: { readonly session: Session; readonly isPresent: boolean }) => (
  <a class="row two" href={href("sessions", session.id)} aria-current={isPresent ? "true" : undefined}>
    <span class="row-line">
      <span class="row-title">{session.title === "" ? <em class="muted">untitled</em> : session.title}</span>
      <span class={`badge ${toneOf[session.state]}`}>{session.state}</span>
    </span>
    <span class="row-note">
      {session.agentType} · {count(session.headSeq)} events · {ago(session.updatedAt, Date.now())}
    </span>
  </a>
)

const SessionsPane = ({ present, sessions }: { readonly sessions: Sessions; readonly present: string | undefined }) => {
  const [isNew, setNew] = useState(false)
  const [filter, setFilter] = useState("")
  useEffect(() => {
    const ended = new AbortController()
    void refreshSessions(sessions, ended.signal)
    const timer = setInterval(() => document.hidden || void refreshSessions(sessions, ended.signal), everyMs)
    return () => {
      clearInterval(timer)
      ended.abort(new DOMException("The list is closed", "AbortError"))
    }
  }, [sessions, present])
  const wanted = filter.trim().toLowerCase()
  const shown = listed.value.filter(({ agentType, id, title }) =>
    [title, agentType, id].some(text => text.toLowerCase().includes(wanted))
  )
  return (
    <section class="pane list" aria-label="Sessions">
      <div class="pane-head">
        <div class="search">
          <Icon name="search" />
          <input
            type="search"
            aria-label="Find a session"
            placeholder="Session"
            value={filter}
            onInput={event => setFilter(event.currentTarget.value)}
          />
        </div>
        {canConverse.value && (
          <button type="button" class="button small primary" onClick={() => setNew(true)}>
            <Icon name="plus" /> New
          </button>
        )}
      </div>
      {listProblem.value !== "" && <p class="banner bad">{listProblem.value}</p>}
      {shown.length === 0 ? (
        isListRead.value && <p class="empty">{wanted === "" ? "No sessions yet." : "No session fits."}</p>
      ) : (
        <VirtualList
          label="Sessions, the newest first"
          count={shown.length}
          rowHeight={54}
          keyOf={index => shown[index]?.id ?? index}
          row={index => shown[index] && <SessionRow session={shown[index]} isPresent={shown[index].id === present} />}
        />
      )}
      <p class="pane-foot" role="status">
        <span>
          {count(shown.length)} {shown.length === 1 ? "session" : "sessions"}
        </span>
        <span class={isGatewayConnected.value ? "live" : "live off"}>
          {isGatewayConnected.value ? "live" : "connecting"}
        </span>
      </p>
      {isNew && <NewSession sessions={sessions} onClose={() => setNew(false)} />}
    </section>
  )
}

/** Asks for a token where the credential of the store is not one of sessions. */
const TokenNeeded = () => (
  <div class="scroll-view">
    <section class="panel pad">
      <h2>Sessions need a token</h2>
      <p class="muted">The gateway says: {sessionsRefusal.value}</p>
      <div class="spaced">
        <SecretForm
          label="Token"
          action="Open sessions"
          hint="A JSON Web Token of a tenant. It is kept for this tab alone."
          onGiven={token => void useSessionToken(token)}
        />
      </div>
    </section>
  </div>
)

export const SessionsView = () => {
  const [, id] = route.value
  const opened = sessions.value
  useEffect(() => {
    if (opened === undefined) void openSessions()
  }, [user.value])
  if (opened === undefined) return sessionsRefusal.value === "" ? <p class="empty">Connecting…</p> : <TokenNeeded />
  return (
    <div class="panes two" data-depth={id === undefined ? "list" : "item"}>
      <h1 class="visually-hidden">Sessions</h1>
      <SessionsPane sessions={opened} present={id} />
      {id === undefined ? (
        <section class="pane item vacant" aria-label="Session">
          <p class="empty">Choose a session, or begin a new one.</p>
        </section>
      ) : (
        <SessionPanel key={id} id={id} sessions={opened} />
      )}
    </div>
  )
}
