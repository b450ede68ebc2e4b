/** One entry: its value in the editor, its version, its expiry and its history. */

import { type Dispatch, type StateUpdater, useMemo, useState } from "preact/hooks"
import { isOfGateway } from "../../Gateway/Protocol/Namespaces.ts"
import { format, problemOf } from "../JsonText.ts"
import { canWrite } from "../Service/Connection.ts"
import { ofEntry } from "../Service/Copies.ts"
import { href, leave } from "../Service/Navigation.ts"
import { Banner, Button, Icon } from "../Widgets/Controls.tsx"
import { CopyMenu, place } from "../Widgets/CopyMenu.tsx"
import { Confirm, Dialog } from "../Widgets/Dialog.tsx"
import { now, useGuard } from "../Widgets/Hooks.ts"
import { PaneHead, Tabs } from "../Widgets/Pane.tsx"
import { ago, bytes, dateAndTime, isolated, visible } from "../Widgets/Text.ts"
import { Diff } from "../Widgets/VisibleText.tsx"
import { type EntryEditing, type Outcome, useEntryDraft } from "./EntryEditing.ts"
import { History } from "./History.tsx"
import { NewEntry } from "./NewEntry.tsx"
import { type Expiry, isDirty, isEdited, kept, type TextEntry, textOf } from "./OpenEntry.ts"
import { ValueTab } from "./ValueTab.tsx"

interface ConflictProps {
  readonly editing: EntryEditing
  readonly base: TextEntry
  readonly onClose: () => void
  readonly onOverwrite: (stored: TextEntry | undefined) => void
  readonly onTake: () => void
}

type ExpiriesProps = { readonly base: TextEntry; readonly stored: TextEntry | undefined; readonly expiry: Expiry }

/** When both expire. An expiry that the user has not changed is that of the stored entry. */
const Expiries = ({ base, expiry, stored }: ExpiriesProps) => {
  const theirs = stored === undefined ? "" : textOf(kept, stored.expiresAt)
  const yours = textOf(expiry, (stored ?? base).expiresAt)
  return theirs === yours ? (
    <p class="muted">{yours === "never" ? "Neither of them expires." : `Both expire: ${yours}.`}</p>
  ) : (
    <Diff left={theirs} right={yours} leftTitle="Stored: expires" rightTitle="Yours: expires" />
  )
}

/** Compares the stored entry with the user's changes, if another client has changed it since. */
const Conflict = ({ base, editing, onClose, onOverwrite, onTake }: ConflictProps) => {
  const { absence, draft } = editing
  const stored = editing.stored === "absent" ? undefined : editing.stored
  const text = problemOf(draft.text) === undefined ? format(draft.text) : draft.text
  const theirs = stored === undefined ? "" : format(stored.value)
  return (
    <Dialog title="Edit conflict" isWide onClose={onClose}>
      <p>
        Your changes are based on version {base.version}.{" "}
        {stored === undefined
          ? `The entry ${absence}.`
          : `${isolated(stored.updatedBy)} wrote version ${stored.version} on ${dateAndTime(stored.updatedAt)}.`}{" "}
        Your changes are not saved.
      </p>
      {text === theirs ? (
        <p>The values are the same.</p>
      ) : (
        <Diff
          left={theirs}
          right={text}
          leftTitle={
            stored === undefined
              ? "Stored: absent"
              : `Stored: version ${stored.version} by ${isolated(stored.updatedBy)}`
          }
          rightTitle={`Yours: based on version ${base.version}`}
        />
      )}
      <Expiries base={base} expiry={draft.expiry} stored={stored} />
      <div class="actions">
        <Button
          text={stored === undefined ? "Create it again" : `Overwrite version ${stored.version}`}
          look="primary"
          onClick={() => onOverwrite(stored)}
        />
        <Button text={stored === undefined ? "Discard your changes" : "Use the stored value"} onClick={onTake} />
        <Button text="Keep editing" look="quiet" onClick={onClose} />
      </div>
    </Dialog>
  )
}

type Props = { readonly namespace: string; readonly entryKey: string }

const EntryFacts = ({ entry }: { readonly entry: TextEntry }) => {
  const size = useMemo(() => new Blob([entry.value]).size, [entry])
  return (
    <p class="tabs-note" title={dateAndTime(entry.updatedAt)}>
      {bytes(size)} · {isolated(entry.updatedBy)} · {ago(entry.updatedAt, now.value)}
    </p>
  )
}

type Question =
  | { readonly type: "conflict" | "delete" }
  /** Whether to do what loses changes that are not saved. */
  | { readonly type: "loss"; readonly title: string; readonly act: () => void }

/** What is asked after a write or a delete. */
const after =
  (outcome: Outcome) =>
  (asked: Question | undefined): Question | undefined => {
    if (outcome === "conflict") return asked ?? { type: "conflict" }
    return asked?.type === "conflict" ? undefined : asked
  }

interface QuestionsProps extends Props {
  readonly editing: EntryEditing
  readonly question: Question | undefined
  readonly ask: Dispatch<StateUpdater<Question | undefined>>
  readonly onDiscard: () => void
}

const Questions = ({ ask, editing, entryKey, namespace, onDiscard, question }: QuestionsProps) => {
  const { base } = editing.draft
  const close = () => ask(undefined)
  switch (question?.type) {
    case undefined:
      return null
    case "conflict":
      return base === undefined ? null : (
        <Conflict
          editing={editing}
          base={base}
          onClose={close}
          onOverwrite={stored => void editing.write(stored).then(outcome => ask(after(outcome)))}
          onTake={onDiscard}
        />
      )
    case "delete": {
      const remove = async () => {
        close()
        const outcome = await editing.remove()
        if (outcome === "done") leave("store", namespace)
        else ask(after(outcome))
      }
      return (
        <Confirm title="Delete this entry?" action="Delete" onClose={close} onConfirm={() => void remove()}>
          <code>{visible(entryKey)}</code> in <code>{visible(namespace)}</code>, version {base?.version}. The change log
          keeps its history.
        </Confirm>
      )
    }
    case "loss":
      return (
        <Confirm title={question.title} action="Discard changes" onClose={close} onConfirm={question.act}>
          Your changes to <code>{visible(entryKey)}</code> are not saved.
        </Confirm>
      )
  }
}

/** Warns before a record of the gateway is edited. */
const OfService = ({ isUnlocked, onUnlock }: { readonly isUnlocked: boolean; readonly onUnlock: () => void }) => (
  <p class="banner warn" role="status">
    <Icon name="warning" />
    <span class="grow">
      This entry is a record of the gateway. A change or a deletion changes a session, also while it is running.
    </span>
    {canWrite.value && !isUnlocked && <Button text="Edit anyway" look="small" onClick={onUnlock} />}
  </p>
)

export const EntryPanel = ({ entryKey, namespace }: Props) => {
  const [isUnlocked, setUnlocked] = useState(false)
  const [isCreating, setCreating] = useState(false)
  const isOwn = isOfGateway(namespace)
  const isEditable = canWrite.value && (!isOwn || isUnlocked)
  const editing = useEntryDraft(namespace, entryKey)
  const { dispatch, draft, problem, stored } = editing
  const [tab, setTab] = useState<"value" | "history">("value")
  const [question, ask] = useState<Question>()
  const close = () => ask(undefined)
  const { base } = draft
  const present = stored === "absent" ? undefined : stored

  const revision = present === undefined ? "absent" : `${present.version}@${present.updatedAt}`
  useGuard(isDirty(draft) && isEditable, act => ask({ type: "loss", title: "Leave without saving?", act }))

  const save = () => {
    if (base !== undefined && isEditable) void editing.write(base).then(outcome => ask(after(outcome)))
  }
  const take = (value: string) => {
    close()
    dispatch({ type: "taken", value })
    setTab("value")
  }
  const discard = () => {
    close()
    if (present === undefined) leave("store", namespace)
    else dispatch({ type: "discarded", entry: present })
  }

  const isOpen = stored === "absent" ? base !== undefined : stored !== undefined
  const askToTake = (value: string) => ask({ type: "loss", title: "Replace your changes?", act: () => take(value) })
  const history = (
    <History
      {...{ namespace, entryKey, revision }}
      onTake={!isOpen || !isEditable ? undefined : isEdited(draft) ? askToTake : take}
    />
  )
  return (
    <section class="pane item" aria-label="Entry">
      <PaneHead title={entryKey} isName back={{ href: href("store", namespace), label: "All keys" }}>
        {present !== undefined && <span class="badge info">version {present.version}</span>}
        <CopyMenu
          copies={ofEntry(place(), namespace, entryKey)}
          {...(present !== undefined && { value: () => present.value })}
        />
      </PaneHead>
      {isOpen ? (
        <>
          <Tabs
            label="Parts of the entry"
            titles={{ value: "Value", history: "History" }}
            chosen={tab}
            onChoose={setTab}
            note={present !== undefined && <EntryFacts entry={present} />}
          >
            <Banner tone="bad" text={problem} />
            {isOwn && <OfService isUnlocked={isUnlocked} onUnlock={() => setUnlocked(true)} />}
            {tab === "history" ? (
              history
            ) : (
              <ValueTab
                editing={editing}
                isEditable={isEditable}
                onCompare={() => ask({ type: "conflict" })}
                onDelete={() => ask({ type: "delete" })}
                onDiscard={discard}
                onSave={save}
              />
            )}
          </Tabs>
          <p class={draft.failure === "" ? "pane-foot" : "pane-foot bad"} role="status">
            {draft.failure || draft.notice}
          </p>
          <Questions {...{ namespace, entryKey, editing, question, ask }} onDiscard={discard} />
        </>
      ) : (
        <>
          <Banner tone="bad" text={problem} />
          <p class="empty" role="status">
            {stored === "absent" ? "This entry does not exist." : problem === "" && "Loading…"}
            {stored === "absent" && isEditable && (
              <span class="empty-action">
                <Button text="Create this entry" look="small" onClick={() => setCreating(true)} />
              </span>
            )}
          </p>
          {stored === "absent" && history}
          {isCreating && <NewEntry namespace={namespace} initialKey={entryKey} onClose={() => setCreating(false)} />}
        </>
      )}
    </section>
  )
}
