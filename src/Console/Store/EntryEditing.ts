/** Reads an entry, and edits it with the version that it had as the precondition of each write. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"
import { ConnectionFailed, PreconditionFailed } from "../../Client/Client.ts"
import { isClientError, serverTimeOf } from "../../Client/Errors.ts"
import { client, follow } from "../Service/Connection.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { retryUntilDone } from "../Service/Pause.ts"
import { actor, readText, writeText } from "./Entries.ts"
import {
  absenceOf,
  adviceAfter,
  type DraftEvent,
  type Effort,
  type EntryDraft,
  empty,
  isDirty,
  type Removal,
  reduce,
  type TextEntry,
  writtenOf
} from "./OpenEntry.ts"

/** The entry as it is stored; `undefined` until it is read. It is read again after each change. Also its last delete. */
const useEntry = (namespace: string, key: string) => {
  const readAgain = useRef<() => void>(() => {})
  const [stored, setStored] = useState<TextEntry | "absent">()
  const [removal, setRemoval] = useState<Removal>()
  const [problem, setProblem] = useState("")
  useEffect(() => {
    const ended = new AbortController()
    const { signal } = ended
    const report = (error: unknown) => {
      if (!isAbort(error)) setProblem(messageOf(error))
    }
    const read = () =>
      retryUntilDone(() => readText(namespace, key, signal), signal, setProblem)
        .then(entry => setStored(entry ?? "absent"))
        .catch(report)
    const readAfterChanges = async () => {
      for await (const event of follow({ namespace, prefix: key, initial: false, signal })) {
        if (event.type === "change" && event.change.key !== key) continue
        if (event.type === "change") setRemoval(event.change.op === "delete" ? event.change : undefined)
        // The other events mark the start of the feed. Earlier changes are found by reading once more.
        await read()
      }
    }
    readAgain.current = () => void read()
    void read()
    readAfterChanges().catch(report)
    return () => ended.abort()
  }, [namespace, key])
  return { stored, setStored, removal, problem, readAgain }
}

/** `"conflict"`: another client has changed the entry, and the draft has changes that are not saved. */
export type Outcome = "done" | "failed" | "conflict"

/** The draft of a stored entry. Asynchronous work needs it as it is when it ends: `latest`. */
const useDraft = (stored: TextEntry | "absent" | undefined) => {
  const [draft, setDraft] = useState(empty)
  const latest = useRef(draft)
  const dispatch = (event: DraftEvent): EntryDraft => {
    latest.current = reduce(latest.current, event)
    setDraft(latest.current)
    return latest.current
  }
  // A layout effect runs before the next key is typed, which would otherwise be lost.
  useLayoutEffect(() => {
    if (stored !== undefined) dispatch({ type: "read", entry: stored })
  }, [stored])
  return { draft, latest, dispatch }
}

export const useEntryDraft = (namespace: string, key: string) => {
  const { problem, readAgain, removal, setStored, stored } = useEntry(namespace, key)
  const { dispatch, draft, latest } = useDraft(stored)

  /** Reports why nothing was written. Without an answer, or after a change by another client, the entry is read again. */
  const onFailure = async (error: unknown, effort: Effort): Promise<Outcome> => {
    const fail = (message: string): Outcome => {
      dispatch({ type: "failed", message })
      return "failed"
    }
    if (error instanceof ConnectionFailed) {
      dispatch({ type: "unanswered", effort })
      readAgain.current()
      return "failed"
    }
    if (!(error instanceof PreconditionFailed)) return fail(messageOf(error))
    let current: TextEntry | undefined
    try {
      current = await readText(namespace, key)
      setStored(current ?? "absent")
    } catch (error) {
      const { base } = latest.current
      return fail(`Not ${effort}: the entry is no longer at version ${base?.version}. ${messageOf(error)}`)
    }
    return isDirty(latest.current)
      ? "conflict"
      : fail(
          `Not ${effort}: ${current === undefined ? "the entry is absent" : "another client has changed the entry"}.`
        )
  }

  /**
   * Writes the draft over the entry that it is based on, or over another one, if that is still stored; over none if it
   * was deleted. If the user has not changed the expiry, that of the replaced entry is kept.
   */
  const write = async (over: TextEntry | undefined): Promise<Outcome> => {
    if (latest.current.isBusy) return "failed"
    const sent = dispatch({ type: "submitted" })
    if (!sent.isBusy) return "failed"
    const expiresAt = (over ?? sent.base)?.expiresAt ?? null
    try {
      const entry = await writeText(namespace, key, sent.text, over?.version ?? 0, writtenOf(sent.expiry, expiresAt))
      dispatch({ type: "written", entry, sent })
      setStored(entry)
      return "done"
    } catch (error) {
      const isPast = isClientError(error) && serverTimeOf(error) !== undefined
      if (!isPast || expiresAt === null) return await onFailure(error, "saved")
      dispatch({ type: "failed", message: `Not saved: ${adviceAfter(expiresAt)}` })
      return "failed"
    } finally {
      dispatch({ type: "settled" })
    }
  }

  /** Deletes the entry if it is at the version that the draft is based on. */
  const remove = async (): Promise<Outcome> => {
    const { base } = latest.current
    if (base === undefined) return "failed"
    dispatch({ type: "failed", message: "" })
    try {
      await client.value.delete(namespace, key, { ifVersion: base.version, actor })
      return "done"
    } catch (error) {
      return onFailure(error, "deleted")
    }
  }

  return { stored, absence: absenceOf(draft.base, removal), problem, draft, dispatch, write, remove }
}

/** An open entry, its draft, and why it cannot be read (`problem`) or is absent (`absence`, for a sentence). */
export type EntryEditing = ReturnType<typeof useEntryDraft>
