/** One entry: its value in the editor, its version, its expiry and its history. */
import { useLayoutEffect, useMemo, useState } from "preact/hooks"
import { compact, format, problemOf } from "../JsonText.ts"
import { canWrite } from "../Service/Connection.ts"
import { guard, href, leave } from "../Service/Route.ts"
import { Confirm } from "../Widgets/Confirm.tsx"
import { Banner } from "../Widgets/Messages.tsx"
import { now } from "../Widgets/Now.ts"
import { PaneHead } from "../Widgets/Pane.tsx"
import { Tabs } from "../Widgets/Tabs.tsx"
import { ago, bytes, dateAndTime, isolated, visible } from "../Widgets/Text.ts"
import { Conflict } from "./Conflict.tsx"
import { isDirty, isEdited } from "./EntryDraft.ts"
import { type Outcome, useEntryDraft } from "./EntryEditing.ts"
import { History } from "./History.tsx"
import type { TextEntry } from "./TextEntry.ts"
import { ValueTab } from "./ValueTab.tsx"

interface Props {
  readonly namespace: string
  readonly entryKey: string
}

/** The size of an entry, and who wrote it when. */
const EntryFacts = ({ entry }: { readonly entry: TextEntry }) => {
  const size = useMemo(() => new Blob([entry.value]).size, [entry])
  return (
    <p class="tabs-note" title={dateAndTime(entry.updatedAt)}>
      {bytes(size)} · {isolated(entry.updatedBy)} · {ago(entry.updatedAt, now.value)}
    </p>
  )
}

/** Asks before changes that are not saved are lost. */
const ConfirmLoss = (props: {
  readonly title: string
  readonly name: string
  readonly onConfirm: () => void
  readonly onClose: () => void
}) => (
  <Confirm title={props.title} action="Discard changes" onClose={props.onClose} onConfirm={props.onConfirm}>
    Your changes to <code>{visible(props.name)}</code> are not saved.
  </Confirm>
)

type Question =
  | { readonly type: "conflict" | "delete" }
  /** A value of the history is to replace the draft. */
  | { readonly type: "take"; readonly value: string }
  | { readonly type: "leave"; readonly leave: () => void }

export const EntryPanel = ({ entryKey, namespace }: Props) => {
  const { absence, dispatch, draft, problem, remove, stored, write } = useEntryDraft(namespace, entryKey)
  const [tab, setTab] = useState<"value" | "history">("value")
  const [question, ask] = useState<Question>()
  const close = () => ask(undefined)
  const { base } = draft
  const present = stored === "absent" ? undefined : stored

  const revision = present === undefined ? "absent" : `${present.version}@${present.updatedAt}`
  const isLossy = isDirty(draft) && canWrite.value
  // A layout effect runs before the next event, which may leave the entry.
  useLayoutEffect(() => (isLossy ? guard(leave => ask({ type: "leave", leave })) : undefined), [isLossy])

  const onOutcome = (outcome: Outcome) =>
    ask(asked => {
      if (outcome === "conflict") return asked ?? { type: "conflict" }
      return asked?.type === "conflict" ? undefined : asked
    })
  const save = () => {
    if (base !== undefined && canWrite.value) void write(base).then(onOutcome)
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

  const title = (
    <PaneHead title={entryKey} isName back={{ href: href("store", namespace), label: "All keys" }}>
      {present !== undefined && <span class="badge info">version {present.version}</span>}
    </PaneHead>
  )

  if (stored === undefined || (stored === "absent" && base === undefined)) {
    return (
      <section class="pane item" aria-label="Entry">
        {title}
        <Banner tone="bad" text={problem} />
        <p class="empty" role="status">
          {stored === "absent" ? "This entry does not exist." : problem === "" && "Loading…"}
        </p>
        {stored === "absent" && (
          <History namespace={namespace} entryKey={entryKey} revision={revision} onTake={undefined} />
        )}
      </section>
    )
  }

  const onTake = isEdited(draft) ? (value: string) => ask({ type: "take", value }) : take
  return (
    <section class="pane item" aria-label="Entry">
      {title}
      <Tabs
        label="Parts of the entry"
        titles={{ value: "Value", history: "History" }}
        chosen={tab}
        onChoose={setTab}
        note={present !== undefined && <EntryFacts entry={present} />}
      >
        <Banner tone="bad" text={problem} />
        {tab === "history" ? (
          <History
            namespace={namespace}
            entryKey={entryKey}
            revision={revision}
            onTake={canWrite.value ? onTake : undefined}
          />
        ) : (
          <ValueTab
            draft={draft}
            stored={stored}
            absence={absence}
            dispatch={dispatch}
            onCompare={() => ask({ type: "conflict" })}
            onDelete={() => ask({ type: "delete" })}
            onDiscard={discard}
            onSave={save}
          />
        )}
      </Tabs>
      <p class={draft.failure === "" ? "pane-foot" : "pane-foot bad"} role="status">
        {draft.failure !== "" ? draft.failure : draft.notice}
      </p>
      {question?.type === "conflict" && base !== undefined && (
        <Conflict
          base={base}
          stored={present}
          absence={absence}
          text={problemOf(draft.text) === undefined ? format(compact(draft.text)) : draft.text}
          expiry={draft.expiry}
          onClose={close}
          onOverwrite={() => void write(present).then(onOutcome)}
          onTake={discard}
        />
      )}
      {question?.type === "delete" && (
        <Confirm
          title="Delete this entry?"
          action="Delete"
          onClose={close}
          onConfirm={() => {
            close()
            void remove().then(outcome => (outcome === "done" ? leave("store", namespace) : onOutcome(outcome)))
          }}
        >
          <code>{visible(entryKey)}</code> in <code>{visible(namespace)}</code>, version {base?.version}. The change log
          keeps its history.
        </Confirm>
      )}
      {question?.type === "take" && (
        <ConfirmLoss
          title="Replace your changes?"
          name={entryKey}
          onClose={close}
          onConfirm={() => take(question.value)}
        />
      )}
      {question?.type === "leave" && (
        <ConfirmLoss title="Leave without saving?" name={entryKey} onClose={close} onConfirm={question.leave} />
      )}
    </section>
  )
}
