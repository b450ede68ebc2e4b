/**
 * Titles of sessions that were created without one.
 */
import { type Context, Effect, FiberSet, type Scope } from "effect"
import type { Inference } from "../../../Upstream/Inference.ts"
import { sharedPool } from "../../FairPool.ts"
import type { SessionCore } from "./SessionCore.ts"

/** Maximum characters of a title that is made of a message. */
const titleLength = 60

/** Maximum characters of a text, without leading blanks, from which a title is made. */
const startLength = 1000

/** The start of a text without leading blanks, from which a title is made. */
const startOf = (text: string): string => {
  const trimmed = text.trimStart()
  return (trimmed.length > startLength ? withoutHalf(trimmed.slice(0, startLength)) : trimmed).toWellFormed()
}

/** A text without a lone high surrogate at its end. */
const withoutHalf = (text: string): string => text.replace(/[\ud800-\udbff]$/, "")

/** The first words of a message, as a title for its session. */
export const titleOf = (message: string): string => {
  const words = startOf(message).trimEnd().split(/\s+/u).slice(0, 12)
  const all = words.join(" ")
  if (all.length <= titleLength) return all
  const lastBlank = all.lastIndexOf(" ", titleLength)
  return `${lastBlank > 0 ? all.slice(0, lastBlank) : withoutHalf(all.slice(0, titleLength))}…`
}

/** Maximum characters of the message in a prompt. */
const shown = 2000

/** The prompt for a title. */
export const promptFor = (message: string): string =>
  `Write a title of at most six words for a conversation that begins with the message below. Answer with the title alone.\n\n${message.slice(0, shown).toWellFormed()}`

/** Quotation marks and blanks that models put around a title. */
const surroundingMarks = /^["'“‘#*\s]+|["'”’*\s]+$/gu

/** A model's answer as a title; `undefined` if it has no text. */
export const fromAnswer = (answer: string): string | undefined => {
  const title = startOf(answer).split(/\r?\n/u, 1)[0]!.replace(surroundingMarks, "")
  return title === "" ? undefined : titleOf(title)
}

/** Titles that are generated concurrently, and that wait. Further sessions keep the first words of their message. */
const limits = { concurrent: 4, waiting: 64 }

const maxTokens = 32

/** Generates titles in the background. After a failure a session keeps the first words of its first message. */
export const make = (
  inference: Context.Tag.Service<Inference>
): Effect.Effect<(session: SessionCore, message: string) => void, never, Scope.Scope> =>
  Effect.gen(function* () {
    const run = yield* FiberSet.makeRuntime<never>()
    const pool = sharedPool("titles", limits.concurrent, limits.waiting)
    return (session, message) => {
      const generate = Effect.map(inference.generate({ prompt: promptFor(message), maxTokens }), answer => {
        const title = fromAnswer(answer)
        if (title !== undefined && !session.isDeleted) session.amend({ title })
      })
      const limited = Effect.catchAll(
        pool.use(session.record.tenant, 1, () => generate),
        error =>
          Effect.logDebug("No title could be generated for a session").pipe(
            Effect.annotateLogs({ session: session.key, reason: error.message })
          )
      )
      run(session.use(limited))
    }
  })

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
