/** Creates an entry. */
import { useId, useState } from "preact/hooks"
import { PreconditionFailed } from "../../Client/Client.ts"
import { type Problem, problemOf } from "../Json/JsonText.ts"
import { messageOf } from "../Service/Failure.ts"
import { go } from "../Service/Route.ts"
import { useAttempt } from "../Widgets/Attempt.ts"
import { Dialog } from "../Widgets/Dialog.tsx"
import { JsonEditor } from "../Widgets/JsonEditor.tsx"
import { FailureNote } from "../Widgets/Messages.tsx"
import { isolated } from "../Widgets/Text.ts"
import { writeText } from "./Entries.ts"
import { kept, writtenOf } from "./Expiry.ts"
import { ExpiryField } from "./ExpiryField.tsx"

export const NewEntry = ({ namespace, onClose }: { readonly namespace: string; readonly onClose: () => void }) => {
  const [key, setKey] = useState("")
  const [text, setText] = useState("{}")
  const [expiry, setExpiry] = useState(kept)
  const [problem, setProblem] = useState<Problem>()
  const { failure, clearFailure, isBusy, run } = useAttempt()
  const field = useId()

  const save = async () => {
    const found = problemOf(text)
    setProblem(found)
    if (found !== undefined) return
    await writeText(namespace, key, text, 0, writtenOf(expiry, null))
    onClose()
    go("store", namespace, key)
  }

  const trySave = () =>
    run(save, error =>
      error instanceof PreconditionFailed
        ? `The entry ${isolated(key)} already exists. To change it, select it in the list.`
        : messageOf(error)
    )

  return (
    <Dialog title={`New entry in ${isolated(namespace)}`} isWide onClose={onClose}>
      <form
        class="dialog-body"
        onSubmit={event => {
          event.preventDefault()
          void trySave()
        }}
      >
        <div class="field">
          <label for={field}>Key</label>
          <input
            id={field}
            data-first
            class="mono"
            autocomplete="off"
            spellcheck={false}
            value={key}
            onInput={event => {
              setKey(event.currentTarget.value)
              clearFailure()
            }}
          />
        </div>
        <span class="field-title" aria-hidden="true">
          Value (JSON)
        </span>
        <JsonEditor
          label="Value"
          text={text}
          problem={problem}
          onInput={typed => {
            setText(typed)
            setProblem(undefined)
          }}
          onSave={() => void trySave()}
        />
        <ExpiryField expiry={expiry} stored={null} onChange={setExpiry} />
        <FailureNote text={failure} />
        <div class="actions">
          <button type="submit" class="button primary" disabled={key === "" || isBusy}>
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
