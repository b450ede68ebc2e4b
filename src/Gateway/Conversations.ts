/**
 * The conversations of sessions: the folds of their stored events, each from a checkpoint that is stored with its history.
 */
import { hash } from "node:crypto"
import { Context, Effect, Layer, Option } from "effect"
import { SingleFlight } from "../base/SingleFlight.ts"
import { yieldToEventLoop } from "../base/Time/EventLoop.ts"
import { turnOf } from "../base/Time/PacedWork.ts"
import * as Fold from "../Client/Conversation/Fold.ts"
import { StoreUnavailable } from "../Kv/Store.ts"
import { sharedPool } from "./FairPool.ts"
import { type Checkpoint, type EventPage, SessionEvents, SessionUnreadable } from "./SessionEvents.ts"
import { keyOf } from "./Sessions/Session/SessionRecords.ts"
import type { SessionsBusy, Subscription } from "./Sessions.ts"

/** A conversation as JSON text (`Conversation` of the client), and where it ends. */
export interface ReadConversation {
  readonly epoch: string
  /** The newest event in the conversation. */
  readonly seq: number
  readonly text: string
}

/** The error of a read: `StoreUnavailable` also if the history was replaced or removed in the meantime. */
export type ReadError = SessionUnreadable | SessionsBusy | StoreUnavailable

/** Reads conversations, on any node. */
export class Conversations extends Context.Tag("causeway/Conversations")<
  Conversations,
  {
    /**
     * The conversation of a session up to the newest event or a later one. Reads of one session at the same time share
     * the work, which continues after the interruption of a reader.
     */
    readonly read: (
      subscription: Pick<Subscription, "epoch" | "headSeq" | "trimmedSeq"> & {
        readonly session: Pick<Subscription["session"], "id" | "tenant">
      }
    ) => Effect.Effect<ReadConversation, ReadError>
  }
>() {}

/** Events that are read at once. */
const pageEvents = 512

/** Conversations that are read at the same time; each may need 100 MB if it is as long as possible. */
const readers = 4

/** Checkpoints that are stored at the same time. Above it one is omitted. */
const savers = 2

/** Whether another checkpoint is stored after so many events: later for a long conversation. */
const isDue = (events: number, characters: number): boolean => events >= Math.max(500, characters / 2048)

/** To be increased when the fold makes another conversation of the same events. */
const version = "1"

const sealLength = version.length + 46

/** What is stored before a conversation: the version of the fold, and a digest that reveals damage. */
const sealOf = (text: string): string => `${version} ${hash("sha256", text, "base64")} `

/** A conversation as it is stored. */
export const checkpointOf = ({ epoch, seq, text }: ReadConversation): Checkpoint => ({
  epoch,
  seq,
  text: sealOf(text) + text
})

/** The members at the start of a conversation. */
const header = /^\{"epoch":("(?:[^"\\]|\\.)*"),"seq":(\d+),"trimmedSeq":(\d+)[,}]/

/** A conversation that was stored whole. */
interface Stored extends ReadConversation {
  /** Of the conversation. */
  readonly trimmedSeq: number
}

/** The conversation of a checkpoint, if it is one of this epoch and not damaged. */
const unseal = (epoch: string, checkpoint: Checkpoint): Stored | undefined => {
  const text = checkpoint.text.slice(sealLength)
  const found = header.exec(text.slice(0, 4096))
  if (checkpoint.epoch !== epoch || found === null || !checkpoint.text.startsWith(sealOf(text))) return undefined
  const seq = Number(found[2])
  return JSON.parse(found[1]!) === epoch && seq === checkpoint.seq
    ? { epoch, seq, text, trimmedSeq: Number(found[3]) }
    : undefined
}

/** A session whose conversation is read, as the first reader knows it. */
interface Target {
  /** `<tenant>/<id>`. */
  readonly session: string
  readonly epoch: string
  readonly headSeq: number
  readonly trimmedSeq: number
}

type Events = Pick<Context.Tag.Service<SessionEvents>, "checkpoint" | "read" | "saveCheckpoint">

const size = ({ events }: EventPage): number => events.reduce((sum, { text }) => sum + text.length, 0)

/** A conversation, and the number of events that were added to the stored one or removed from it. */
interface Folded extends ReadConversation {
  readonly changed: number
}

/** One read of a conversation. */
class Reading {
  private fold: Fold.Fold | undefined
  private cursor: number
  private added = 0

  constructor(
    private readonly events: Events,
    private readonly target: Target,
    private stored: Stored | undefined
  ) {
    this.cursor = stored?.seq ?? 0
  }

  /** Reads until it has all events that there were at the start. */
  readonly run: Effect.Effect<Folded, SessionUnreadable | StoreUnavailable> = Effect.gen(this, function* () {
    let end: number | undefined
    do {
      const page = yield* this.page
      end ??= page.history.headSeq
      if (this.cursor > page.history.headSeq) {
        // The checkpoint is ahead of the history, which has lost its end.
        this.stored = undefined
        this.cursor = 0
        continue
      }
      const fold = yield* this.begin(page)
      yield* turnOf(size(page))
      yield* this.add(fold, page)
      yield* yieldToEventLoop
    } while (this.fold === undefined || this.cursor < end)
    const { conversation, size: characters } = this.fold
    yield* turnOf(characters)
    const text = JSON.stringify(conversation)
    const removed = conversation.trimmedSeq - (this.stored?.trimmedSeq ?? conversation.trimmedSeq)
    return { epoch: this.target.epoch, seq: this.cursor, text, changed: Math.max(this.added, removed) }
  })

  private readonly page = Effect.suspend(() => {
    const { epoch, headSeq, session } = this.target
    return Effect.flatMap(this.events.read(session, this.cursor, pageEvents), page =>
      Option.isSome(page) && page.value.history.epoch === epoch && page.value.history.headSeq >= headSeq
        ? Effect.succeed(page.value)
        : new StoreUnavailable({ reason: "the history of the session was replaced" })
    )
  })

  /** The fold to which a page is added: that of the stored conversation, unless events between the two are missing. */
  private begin({ history: { trimmedSeq } }: EventPage): Effect.Effect<Fold.Fold> {
    return Effect.gen(this, function* () {
      if (this.cursor < trimmedSeq) {
        this.cursor = trimmedSeq
        this.added = 0
        this.fold = Fold.resume(Fold.empty(this.target.epoch, trimmedSeq))
      } else if (this.fold === undefined) {
        if (this.stored !== undefined) yield* turnOf(this.stored.text.length)
        const { epoch } = this.target
        const conversation = this.stored === undefined ? Fold.empty(epoch) : JSON.parse(this.stored.text)
        yield* yieldToEventLoop
        this.fold = Fold.resume(conversation)
      }
      Fold.trim(this.fold, trimmedSeq)
      return this.fold
    })
  }

  private add(fold: Fold.Fold, { events, history }: EventPage): Effect.Effect<void, SessionUnreadable> {
    const { session } = this.target
    return Effect.try({
      try: () => {
        for (const { seq, text } of events) {
          if (seq !== this.cursor + 1) throw new Error(`event ${this.cursor + 1} is missing`)
          Fold.add(fold, JSON.parse(text))
          this.cursor = seq
          this.added++
        }
        if (events.length === 0 && this.cursor < history.headSeq) {
          throw new Error(`event ${this.cursor + 1} is missing`)
        }
      },
      catch: error => new SessionUnreadable({ session, reason: String(error) })
    })
  }
}

const make = Effect.gen(function* () {
  const events = yield* SessionEvents
  const scope = yield* Effect.scope
  const pool = sharedPool("reads of conversations", readers)
  const flights = new SingleFlight<string, ReadConversation, ReadError>(scope)
  const saving = yield* Effect.makeSemaphore(savers)

  /** A checkpoint that cannot be read counts as none: what is wrong with the store shows in the read of the events. */
  const stored = ({ epoch, session }: Target) =>
    events.checkpoint(session).pipe(
      Effect.orElseSucceed(() => Option.none<Checkpoint>()),
      Effect.tap(found => turnOf(Option.match(found, { onNone: () => 0, onSome: ({ text }) => text.length }))),
      Effect.map(found => (Option.isSome(found) ? unseal(epoch, found.value) : undefined))
    )

  const save = ({ session }: Target, conversation: ReadConversation) =>
    turnOf(conversation.text.length).pipe(
      Effect.zipRight(Effect.suspend(() => events.saveCheckpoint(session, checkpointOf(conversation)))),
      Effect.catchAllCause(cause =>
        Effect.annotateLogs(Effect.logDebug("A checkpoint of a conversation was not stored", cause), { session })
      ),
      saving.withPermitsIfAvailable(1)
    )

  const readOnce = (target: Target): Effect.Effect<ReadConversation, SessionUnreadable | StoreUnavailable> =>
    Effect.gen(function* () {
      const known = yield* stored(target)
      if (known?.seq === target.headSeq && known.trimmedSeq >= target.trimmedSeq) return known
      const { changed, epoch, seq, text } = yield* new Reading(events, target, known).run
      const conversation = { epoch, seq, text }
      // In the background, so that a store that is slow or full harms no reader.
      if (isDue(changed, text.length)) yield* Effect.forkIn(save(target, conversation), scope)
      return conversation
    })

  return Conversations.of({
    read: ({ epoch, headSeq, session: { id, tenant }, trimmedSeq }) => {
      const session = keyOf(tenant, id)
      const reading = pool.use(tenant, 1, () => readOnce({ session, epoch, headSeq, trimmedSeq }))
      // A read that was running may end before the newest event. The next one includes it.
      return Effect.repeat(flights.run(`${session} ${epoch}`, reading), { until: ({ seq }) => seq >= headSeq })
    }
  })
})

/** Reads the conversations of stored sessions. */
export const layer: Layer.Layer<Conversations, never, SessionEvents> = Layer.scoped(Conversations, make)
