import type { SessionCore } from "./SessionCore.ts"
import { titleOf } from "./Titles.ts"

/** The title of a session: the first words of its first message, until one is generated after the first turn. */
export class SessionTitle {
  /** What a title is generated from once the first turn is completed. */
  private firstMessage: string | undefined

  constructor(private readonly session: SessionCore) {}

  /** Called with each message. The first one becomes the title unless the client gave one. */
  onMessage(content: string): void {
    const { title, titled } = this.session.record
    if (title !== "" || titled) return
    this.firstMessage = content
    this.session.amend({ title: titleOf(content) })
  }

  /** Called after the first turn. Has a title generated unless the client gave one. */
  finish(): void {
    const { firstMessage } = this
    this.firstMessage = undefined
    this.session.amend({ titled: true })
    if (firstMessage !== undefined) this.session.shared.generateTitle(this.session, firstMessage)
  }
}
