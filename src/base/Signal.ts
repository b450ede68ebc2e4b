/** What callbacks signal to an effect that waits for it. */
import { type Effect, Exit } from "effect"
import * as Direct from "./Direct.ts"

/** A flag for which one consumer waits. A latch of Effect would need a fiber for each wait. */
export class Signal {
  private isSet = false
  private wake: (() => void) | undefined

  set(): void {
    this.isSet = true
    const { wake } = this
    this.wake = undefined
    wake?.()
  }

  clear(): void {
    this.isSet = false
  }

  /** Waits until it is set. The effect is direct. */
  readonly wait: Effect.Effect<void> = Direct.async(resume => {
    if (this.isSet) resume(Exit.void)
    else this.wake = () => resume(Exit.void)
    return () => {
      this.wake = undefined
    }
  })
}
