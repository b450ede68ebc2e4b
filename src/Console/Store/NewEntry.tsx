/** Puts an entry where there is none. */
import { useId, useState } from "preact/hooks"
import { PreconditionFailed } from "../../Client/Client.ts"
import { JsonEditor } from "../Json/JsonEditor.tsx"
import { type Problem, problemOf } from "../Json/JsonText.ts"
import { messageOf } from "../Service/Failure.ts"
import { go } from "../Service/Route.ts"
import { Dialog } from "../Widgets/Dialog.tsx"
import { writeText } from "./Entries.ts"
import { type Expiry, ExpiryField, timeOf } from "./Expiry.tsx"

export const NewEntry = ({ namespace, onClose }: { readonly namespace: string; readonly onClose: () => void }) => {
  const [key, setKey] = useState("")
  const [text, setText] = useState("{}")
  const [expiry, setExpiry] = useState<Expiry>({ kind: "never" })
  const [problem, setProblem] = useState<Problem>()
  const [failure, setFailure] = useState("")
  const [isBusy, setBusy] = useState(false)
  const field = useId()

  const save = async () => {
    const found = problemOf(text)
    setProblem(found)
    if (found !== undefined) return
    setBusy(true)
    try {
      await writeText(namespace, key, text, 0, timeOf(expiry, Date.now()))
      onClose()
      go("store", namespace, key)
    } catch (error) {
      setFailure(
        error instanceof PreconditionFailed
          ? `There is an entry ${key} already. Close this and choose it in the list to change it.`
          : messageOf(error)
      )
    } finally {
      setBusy(false)
    }
  }

  return (
    <Dialog title={`New entry in ${namespace}`} isWide onClose={onClose}>
      <form
        class="dialog-body"
        onSubmit={event => {
          event.preventDefault()
          void save()
        }}
      >
        <div class="field">
          <label for={field}>Key</label>
          <input
            id={field}
            class="mono"
            autocomplete="off"
            spellcheck={false}
            value={key}
            onInput={event => {
              setKey(event.currentTarget.value)
              setFailure("")
            }}
          />
        </div>
        <JsonEditor
          label="Value"
          text={text}
          problem={problem}
          onInput={typed => {
            setText(typed)
            setProblem(undefined)
          }}
          onSave={() => void save()}
        />
        <ExpiryField expiry={expiry} stored={null} onChange={setExpiry} />
        {failure !== "" && (
          <p class="note bad" role="alert">
            {failure}
          </p>
        )}
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
