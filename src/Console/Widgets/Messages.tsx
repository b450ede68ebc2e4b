/** Messages. An empty text shows nothing. */

interface Props {
  readonly text: string
}

/** A message across a view or a pane. */
export const Banner = ({ text, tone }: Props & { readonly tone: "bad" | "warn" | "info" }) =>
  text === "" ? null : (
    <p class={`banner ${tone}`} role={tone === "info" ? "status" : "alert"}>
      {text}
    </p>
  )

/** Why an action of the user failed. */
export const FailureNote = ({ text }: Props) =>
  text === "" ? null : (
    <p class="note bad" role="alert">
      {text}
    </p>
  )
