/** Messages. An empty text shows nothing. */

/** A message across a view or a pane. */
export const Banner = ({ text, tone }: { readonly text: string; readonly tone: "bad" | "warn" | "info" }) =>
  text === "" ? null : (
    <p class={`banner ${tone}`} role={tone === "info" ? "status" : "alert"}>
      {text}
    </p>
  )

/** Why an action of the user failed. */
export const FailureNote = ({ text }: { readonly text: string }) =>
  text === "" ? null : (
    <p class="note bad" role="alert">
      {text}
    </p>
  )
