/** What the page says where something went wrong, or is worth knowing. Without a text it says nothing. */

interface Props {
  readonly text: string
}

/** Across a view or a pane. */
export const Banner = ({ text, tone }: Props & { readonly tone: "bad" | "warn" | "info" }) =>
  text === "" ? null : (
    <p class={`banner ${tone}`} role={tone === "info" ? "status" : "alert"}>
      {text}
    </p>
  )

/** Beside what the user has tried. */
export const FailureNote = ({ text }: Props) =>
  text === "" ? null : (
    <p class="note bad" role="alert">
      {text}
    </p>
  )
