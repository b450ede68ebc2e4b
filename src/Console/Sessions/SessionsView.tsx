/** Sessions with agents: the list, and one session. */
import { useEffect, useState } from "preact/hooks"
import type { Session, Sessions } from "../../Client/Client.ts"
import {
  canConverse,
  hasSessionToken,
  isGatewayConnected,
  isOpeningSessions,
  openSessions,
  sessions,
  sessionsIdentity,
  sessionsProblem,
  sessionsRefusal,
  user,
  useSessionToken
} from "../Service/Connection.ts"
import { ofSession } from "../Service/Copies.ts"
import { go, href, route } from "../Service/Navigation.ts"
import { Banner, Button, FailureNote } from "../Widgets/Controls.tsx"
import { place } from "../Widgets/CopyMenu.tsx"
import { Dialog } from "../Widgets/Dialog.tsx"
import { now, useAttempt } from "../Widgets/Hooks.ts"
import { ListFoot, SearchField } from "../Widgets/Pane.tsx"
import { SecretForm } from "../Widgets/Shell.tsx"
import { ago, atLeast, count, counted, visible } from "../Widgets/Text.ts"
import { RowList } from "../Widgets/VirtualList.tsx"
import { toneOf } from "./SessionFeed.ts"
import {
  chooseFilter,
  type Filter,
  filterOf,
  filters,
  listed,
  listedFilter,
  listProblem,
  maxWaiting,
  refreshSessions,
  waitingCount
} from "./SessionList.ts"
import { SessionPanel } from "./SessionPanel.tsx"

const refreshMs = 4000

const NewSession = ({ onClose, sessions }: { readonly sessions: Sessions; readonly onClose: () => void }) => {
  const [agentType, setAgentType] = useState("echo")
  const [title, setTitle] = useState("")
  const { failure, isBusy, run } = useAttempt()

  const create = async () => {
    const options = title.trim() === "" ? {} : { title: title.trim() }
    const { id } = await sessions.create(agentType.trim(), options)
    onClose()
    go("sessions", id)
  }

  return (
    <Dialog title="New session" onClose={onClose} onSubmit={() => void run(create)}>
      <label class="field">
        Agent type
        <input data-first value={agentType} onInput={event => setAgentType(event.currentTarget.value)} />
      </label>
      <label class="field">
        Title
        <input
          value={title}
          placeholder="Created from the first message"
          onInput={event => setTitle(event.currentTarget.value)}
        />
      </label>
      <FailureNote text={failure} />
      <div class="actions">
        <Button text="Create" look="primary" isDisabled={isBusy || agentType.trim() === ""} />
        <Button text="Cancel" onClick={onClose} />
      </div>
    </Dialog>
  )
}

/** What is most urgent of a session: that it waits for a person, or works, or has failed; otherwise its state. */
const Activity = ({ failed, running, state, waiting }: Session) => {
  if (waiting) return <span class="badge warn">waiting for you</span>
  if (running) return <span class="badge info">running</span>
  if (failed) return <span class="badge bad">failed</span>
  return <span class={`badge ${toneOf[state]}`}>{state}</span>
}

const SessionRow = ({ isPresent, session }: { readonly session: Session; readonly isPresent: boolean }) => (
  <a class="row two" href={href("sessions", session.id)} aria-current={isPresent ? "true" : undefined}>
    <span class="row-line">
      <span class="row-title" dir="auto" title={visible(session.title)}>
        {session.title === "" ? <em class="muted">untitled</em> : visible(session.title)}
      </span>
      <Activity {...session} />
    </span>
    <span class="row-note">
      {visible(session.agentType)} · {session.state} · {count(session.headSeq)} events ·{" "}
      {ago(session.lastEventAt ?? session.updatedAt, now.value)}
    </span>
  </a>
)

const titleOf = (filter: Filter): string => {
  const { value = 0 } = waitingCount
  const { title } = filters[filter]
  return filter === "waiting" && value > 0 ? `${title} ${atLeast(value, value < maxWaiting)}` : title
}

const Filters = ({ chosen }: { readonly chosen: Filter }) => (
  <div class="pane-head filters" role="group" aria-label="Which sessions">
    {(Object.keys(filters) as ReadonlyArray<Filter>).map(name => (
      <Button text={titleOf(name)} look="small" isPressed={name === chosen} onClick={() => chooseFilter(name)} />
    ))}
  </div>
)

/** The tenant and the user of the sessions. In dev mode there are none. */
const Identity = ({ onChangeToken }: { readonly onChangeToken: () => void }) => {
  const identity = sessionsIdentity.value
  if (identity === undefined) return null
  return (
    <p class="pane-note">
      <span class="grow">
        Tenant <b>{visible(identity.tenant)}</b>, as <b>{visible(identity.sub)}</b>
      </span>
      <Button text="Change" look="small quiet" onClick={onChangeToken} />
    </p>
  )
}

const emptyOf: Readonly<Record<Exclude<Filter, "all">, string>> = {
  waiting: "No session waits for a person.",
  running: "No session is running.",
  failed: "No session has failed.",
  idle: "No session is idle."
}

interface SessionsPaneProps {
  readonly sessions: Sessions
  readonly present: string | undefined
  readonly onChangeToken: () => void
}

const SessionsPane = ({ onChangeToken, present, sessions }: SessionsPaneProps) => {
  const [isNew, setNew] = useState(false)
  const [filter, setFilter] = useState("")
  const only = filterOf()
  const isRead = listedFilter.value === only
  useEffect(() => {
    const ended = new AbortController()
    void refreshSessions(sessions, only, ended.signal)
    const timer = setInterval(() => document.hidden || void refreshSessions(sessions, only, ended.signal), refreshMs)
    return () => {
      clearInterval(timer)
      ended.abort()
    }
  }, [sessions, present, only])
  const wanted = filter.trim().toLowerCase()
  const shown = (isRead ? listed.value : []).filter(({ agentType, id, title }) =>
    [title, agentType, id].some(text => text.toLowerCase().includes(wanted))
  )
  return (
    <section class="pane list" aria-label="Sessions">
      <div class="pane-head">
        <SearchField label="Find a session" placeholder="Title, type or ID" value={filter} onInput={setFilter} />
        {canConverse.value && <Button text="New" look="small primary" icon="plus" onClick={() => setNew(true)} />}
      </div>
      <Filters chosen={only} />
      <Identity onChangeToken={onChangeToken} />
      <Banner tone="bad" text={listProblem.value} />
      <RowList
        label="Sessions, last active first"
        isRead={isRead}
        problem={listProblem.value}
        empty={wanted !== "" ? "No sessions match." : only === "all" ? "No sessions yet." : emptyOf[only]}
        count={shown.length}
        rowHeight={54}
        keyOf={index => shown[index]?.id ?? index}
        copies={index => shown[index] && { copies: ofSession(place(), shown[index].id) }}
        row={index => shown[index] && <SessionRow session={shown[index]} isPresent={shown[index].id === present} />}
      />
      <ListFoot isLive={isGatewayConnected.value}>{counted(shown.length, "session", "sessions")}</ListFoot>
      {isNew && <NewSession sessions={sessions} onClose={() => setNew(false)} />}
    </section>
  )
}

type TokenFormProps = { readonly onCancel: (() => void) | undefined; readonly onGiven: (token: string) => void }

/** Asks for a token, if the key of the store does not open sessions or the user wants to use another token. */
const TokenForm = ({ onCancel, onGiven }: TokenFormProps) => {
  const refusal = sessionsRefusal.value
  const isFirst = !hasSessionToken.value
  return (
    <div class="scroll-view">
      <section class="panel pad">
        <h2>{onCancel === undefined ? "Sessions require a token" : "Use another token"}</h2>
        <p class="muted">
          Sessions belong to a tenant. Enter a JSON Web Token with the claims <code>tenant</code> and <code>sub</code>.
          {isFirst && refusal !== "" && ` With the current key, the gateway answers: ${refusal}`}
        </p>
        <div class="spaced">
          <SecretForm
            label="Token"
            action="Open sessions"
            hint="Stored for this tab only."
            isBusy={isOpeningSessions.value}
            problem={isFirst ? "" : refusal}
            onGiven={onGiven}
          />
        </div>
        {onCancel !== undefined && <Button text="Cancel" look="quiet" onClick={onCancel} />}
      </section>
    </div>
  )
}

export const SessionsView = () => {
  const [, id] = route.value
  const opened = sessions.value
  const [isChanging, setChanging] = useState(false)
  useEffect(() => {
    if (opened === undefined) void openSessions()
  }, [user.value])
  if (isChanging || (opened === undefined && sessionsRefusal.value !== "")) {
    return (
      <TokenForm
        onCancel={isChanging && opened !== undefined ? () => setChanging(false) : undefined}
        onGiven={token => {
          setChanging(false)
          go("sessions")
          void useSessionToken(token)
        }}
      />
    )
  }
  if (opened === undefined) {
    return (
      <p class="empty" role="status">
        Connecting… {sessionsProblem.value}
      </p>
    )
  }
  return (
    <div class="panes two" data-depth={id === undefined ? "list" : "item"}>
      <h1 class="visually-hidden">Sessions</h1>
      <SessionsPane sessions={opened} present={id} onChangeToken={() => setChanging(true)} />
      {id === undefined ? (
        <section class="pane item vacant" aria-label="Session">
          <p class="empty">Select a session, or create one.</p>
        </section>
      ) : (
        <SessionPanel key={id} id={id} sessions={opened} />
      )}
    </div>
  )
}
