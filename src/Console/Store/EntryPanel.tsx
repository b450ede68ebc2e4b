/** One entry: its value in the editor, its version, its expiry and its history. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks"
import { PreconditionFailed } from "../../Client/Client.ts"
import { JsonEditor } from "../Json/JsonEditor.tsx"
import { compact, format, type Problem, problemOf } from "../Json/JsonText.ts"
import { canWrite, client, follow } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { persist } from "../Service/Persist.ts"
import { guard, href, leave } from "../Service/Route.ts"
import { Confirm } from "../Widgets/Confirm.tsx"
import { Icon } from "../Widgets/Icon.tsx"
import { Banner } from "../Widgets/Messages.tsx"
import { now } from "../Widgets/Now.ts"
import { PaneHead } from "../Widgets/Pane.tsx"
import { Tabs } from "../Widgets/Tabs.tsx"
import { ago, bytes, dateAndTime, isolated, visible } from "../Widgets/Text.ts"
import { Conflict } from "./Conflict.tsx"
import { actor, readText, type TextEntry, writeText } from "./Entries.ts"
import { type Expiry, ExpiryField, expiryOf, writtenOf } from "./Expiry.tsx"
import { History } from "./History.tsx"

interface Props {
  readonly namespace: string
  readonly entryKey: string
}

/** The value as the editor has it at first. */
const draftOf = (entry: TextEntry | undefined): string => (entry === undefined ? "" : format(entry.value))

/** Whether both are the same write. An entry that was deleted begins at version 1 again. */
const isSame = (entry: TextEntry, base: TextEntry | undefined): boolean =>
  entry.version === base?.version && entry.updatedAt === base.updatedAt

/** The entry as the service has it, read again with each change that comes in. */
const useEntry = (namespace: string, key: string) => {
  const [stored, setStored] = useState<TextEntry | "absent">()
  const [problem, setProblem] = useState("")
  useEffect(() => {
    const ended = new AbortController()
    const read = async () => {
      try {
        const { signal } = ended
        setStored((await persist(() => readText(namespace, key, signal), signal, setProblem)) ?? "absent")
      } catch (error) {
        if (!isAbort(error)) setProblem(messageOf(error))
      }
    }
    const readAgain = async () => {
      const { signal } = ended
      try {
        for await (const event of follow({ namespace, prefix: key, initial: false, signal })) {
          // What was written before the feed began is read once it has.
          if (event.type !== "change" || event.change.key === key) await read()
        }
      } catch (error) {
        if (!isAbort(error)) setProblem(messageOf(error))
      }
    }
    void read()
    void readAgain()
    return () => ended.abort(new DOMException("The entry is closed", "AbortError"))
  }, [namespace, key])
  return { stored, setStored, problem }
}

export const EntryPanel = ({ entryKey, namespace }: Props) => {
  const { problem: readProblem, setStored, stored } = useEntry(namespace, entryKey)
  /** What the draft was made from; its version is the precondition of a write. */
  const [base, setBase] = useState<TextEntry>()
  const [draft, setDraft] = useState("")
  const [expiry, setExpiry] = useState<Expiry>({ kind: "never" })
  const [problem, setProblem] = useState<Problem>()
  const [failure, setFailure] = useState("")
  const [notice, setNotice] = useState("")
  const [isBusy, setBusy] = useState(false)
  const [tab, setTab] = useState<"value" | "history">("value")
  const [dialog, setDialog] = useState<"conflict" | "delete">()
  /** Leaves the entry, where the user is asked first. */
  const [leaving, setLeaving] = useState<() => void>()
  /** A value of the history that is to take the place of the draft, where the user is asked first. */
  const [taken, setTaken] = useState<string>()

  // A value may have megabytes, and this is drawn anew with each key.
  const original = useMemo(() => draftOf(base), [base])
  const isEdited = base !== undefined && draft !== original
  const isDirty = isEdited || (base !== undefined && expiry.kind !== expiryOf(base.expiresAt).kind)
  const dirty = useRef(isDirty)
  dirty.current = isDirty
  const isLossy = isDirty && canWrite.value
  // Before the next event, which may leave the entry.
  useLayoutEffect(() => (isLossy ? guard(go => setLeaving(() => go)) : undefined), [isLossy])

  const adopt = (entry: TextEntry) => {
    setBase(entry)
    setDraft(draftOf(entry))
    setExpiry(expiryOf(entry.expiresAt))
    setProblem(undefined)
  }

  // Before the next key is typed: what is typed by then would be lost.
  useLayoutEffect(() => {
    if (stored === undefined || stored === "absent" || dirty.current || isSame(stored, base)) return
    if (base !== undefined && stored.version > base.version && stored.updatedBy !== actor) {
      setNotice(`Changed by ${isolated(stored.updatedBy)} to version ${stored.version}`)
    }
    adopt(stored)
  }, [stored])

  const present = stored === "absent" ? undefined : stored
  const size = useMemo(() => (present === undefined ? 0 : new Blob([present.value]).size), [present])
  const isBehind =
    isDirty && !isBusy && (stored === "absent" || (present !== undefined && present.version !== base?.version))

  /** Writes over the entry at a version; 0 where it was deleted meanwhile. */
  const write = async (ifVersion: number) => {
    const found = problemOf(draft)
    setProblem(found)
    if (found !== undefined || isBusy) return
    setBusy(true)
    setFailure("")
    try {
      const written = await writeText(namespace, entryKey, draft, ifVersion, writtenOf(expiry))
      setDialog(undefined)
      setBase(written)
      // What was typed or chosen meanwhile is not saved yet.
      setDraft(present => (present === draft ? draftOf(written) : present))
      setExpiry(present => (present === expiry ? expiryOf(written.expiresAt) : present))
      setStored(written)
      setNotice(`Saved as version ${written.version}`)
    } catch (error) {
      await explain(error, "saved")
    } finally {
      setBusy(false)
    }
  }

  /** Says why nothing was written. Where somebody else has written, the entry is read again and both are shown. */
  const explain = async (error: unknown, what: string) => {
    if (!(error instanceof PreconditionFailed)) return setFailure(messageOf(error))
    try {
      setStored((await readText(namespace, entryKey)) ?? "absent")
      if (dirty.current) setDialog("conflict")
      else setFailure(`Nothing was ${what}, as somebody else has written or deleted the entry meanwhile.`)
    } catch (error) {
      setDialog(undefined)
      setFailure(`Nothing was ${what}, as the entry is not at version ${base?.version} now. ${messageOf(error)}`)
    }
  }

  /** Edits a value of the history. */
  const take = (value: string) => {
    setTaken(undefined)
    setDraft(format(value))
    setProblem(undefined)
    setNotice("")
    setFailure("")
    setTab("value")
  }

  const save = () => {
    if (base !== undefined && canWrite.value) void write(base.version)
  }

  const remove = async () => {
    if (base === undefined) return
    setDialog(undefined)
    setFailure("")
    try {
      await client.value.delete(namespace, entryKey, { ifVersion: base.version, actor })
      leave("store", namespace)
    } catch (error) {
      await explain(error, "deleted")
    }
  }

  const discard = () => {
    setFailure("")
    if (present === undefined) leave("store", namespace)
    else adopt(present)
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
        <Banner tone="bad" text={readProblem} />
        <p class="empty" role="status">
          {stored === "absent" ? "There is no such entry." : readProblem === "" && "Reading…"}
        </p>
        {stored === "absent" && <History namespace={namespace} entryKey={entryKey} onTake={undefined} />}
      </section>
    )
  }

  return (
    <section class="pane item" aria-label="Entry">
      {title}
      <Tabs
        label="Parts of the entry"
        titles={{ value: "Value", history: "History" }}
        chosen={tab}
        onChoose={setTab}
        note={
          present !== undefined && (
            <p class="tabs-note" title={dateAndTime(present.updatedAt)}>
              {bytes(size)} · {isolated(present.updatedBy)} · {ago(present.updatedAt, now.value)}
            </p>
          )
        }
      >
        <Banner tone="bad" text={readProblem} />
        {tab === "history" ? (
          <History
            namespace={namespace}
            entryKey={entryKey}
            onTake={canWrite.value ? (isEdited ? setTaken : take) : undefined}
          />
        ) : (
          <>
            {isBehind && (
              <p class="banner warn" role="alert">
                <Icon name="warning" />
                <span class="grow">
                  {present === undefined
                    ? "This entry was deleted while you were editing."
                    : `${isolated(present.updatedBy)} changed this entry to version ${present.version} while you were editing version ${base?.version}.`}
                </span>
                <button type="button" class="button small" onClick={() => setDialog("conflict")}>
                  Compare
                </button>
              </p>
            )}
            {stored === "absent" && !isBehind && (
              <p class="banner warn" role="status">
                This entry was deleted.
              </p>
            )}
            <JsonEditor
              label="Value"
              text={draft}
              isReadOnly={!canWrite.value}
              problem={problem}
              onInput={typed => {
                setDraft(typed)
                setProblem(undefined)
                setNotice("")
                setFailure("")
              }}
              onSave={save}
            />
            <div class="pane-actions">
              {canWrite.value ? (
                <>
                  <ExpiryField expiry={expiry} stored={base?.expiresAt ?? null} onChange={setExpiry} />
                  <span class="grow" />
                  <button
                    type="button"
                    class="button quiet danger icon-only"
                    aria-label="Delete"
                    title="Delete"
                    disabled={stored === "absent"}
                    onClick={() => setDialog("delete")}
                  >
                    <Icon name="trash" />
                  </button>
                  <button
                    type="button"
                    class="button"
                    onClick={() => {
                      const found = problemOf(draft)
                      setProblem(found)
                      if (found === undefined) setDraft(format(draft))
                    }}
                  >
                    Format
                  </button>
                  <button type="button" class="button" disabled={!isDirty} onClick={discard}>
                    Discard
                  </button>
                  <button type="button" class="button primary" disabled={!isDirty || isBusy} onClick={save}>
                    Save
                  </button>
                </>
              ) : (
                <p class="muted">
                  {base?.expiresAt == null ? "Never expires." : `Expires ${dateAndTime(base.expiresAt)}.`} This key only
                  reads.
                </p>
              )}
            </div>
          </>
        )}
      </Tabs>
      <p class={failure === "" ? "pane-foot" : "pane-foot bad"} role="status">
        {failure !== "" ? failure : notice}
      </p>
      {dialog === "conflict" && base !== undefined && (
        <Conflict
          base={base}
          stored={present}
          draft={problemOf(draft) === undefined ? format(compact(draft)) : draft}
          onClose={() => setDialog(undefined)}
          onOverwrite={() => void write(present?.version ?? 0)}
          onTake={() => {
            setDialog(undefined)
            discard()
          }}
        />
      )}
      {dialog === "delete" && (
        <Confirm
          title="Delete this entry?"
          action="Delete"
          onClose={() => setDialog(undefined)}
          onConfirm={() => void remove()}
        >
          <code>{visible(entryKey)}</code> in <code>{visible(namespace)}</code>, version {base?.version}. The change log
          keeps its history.
        </Confirm>
      )}
      {taken !== undefined && (
        <Confirm
          title="Replace the edit?"
          action="Discard the edit"
          onClose={() => setTaken(undefined)}
          onConfirm={() => take(taken)}
        >
          What you have changed in the value of <code>{visible(entryKey)}</code> is not saved.
        </Confirm>
      )}
      {leaving !== undefined && (
        <Confirm
          title="Leave without saving?"
          action="Discard the edit"
          onClose={() => setLeaving(undefined)}
          onConfirm={leaving}
        >
          What you have changed in <code>{visible(entryKey)}</code> is not saved.
        </Confirm>
      )}
    </section>
  )
}
