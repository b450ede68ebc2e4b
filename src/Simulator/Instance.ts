/** The state of a simulated instance, and the history of its events. */
import { type Clock, Deferred, Duration, Effect, FiberId, Option } from "effect"
import { Changes } from "./Changes.ts"
import type { Limits } from "./Options.ts"
import { Workspace } from "./Workspace.ts"

/** An event without its id and timestamp. */
export interface EventBody {
  readonly type: string
  readonly [field: string]: unknown
}

/** A text frame, or a binary one. */
export type Frame = string | Buffer

/** The newest frames of an instance, numbered from 1 without gaps. */
export class EventHistory {
  private readonly frames = new Map<number, Frame>()
  /** The number of the oldest frame kept; one past `last` if there is none. */
  first = 1
  last = 0

  constructor(private readonly limit: number) {}

  get(number: number): Frame | undefined {
    return this.frames.get(number)
  }

  append(event: EventBody, timestamp: number): void {
    this.appendFrame(JSON.stringify({ id: `e${this.last + 1}`, timestamp, ...event }))
  }

  /** Appends a frame that is not a valid event. It has a number, but no id. */
  appendFrame(frame: Frame): void {
    this.frames.set(++this.last, frame)
    if (this.frames.size > this.limit) this.frames.delete(this.first++)
  }

  /**
   * The number of the first frame to replay after an event: the oldest kept if there is no id, if it is unknown, or if
   * the next frames were removed.
   */
  numberAfter(id: string | null): number {
    const number = /^e\d{1,15}$/.test(id ?? "") ? Number(id!.slice(1)) + 1 : 0
    return number > this.last + 1 ? this.first : Math.max(this.first, number)
  }
}

export interface ClientConnection {
  /** The number of the last frame that was written to the network. */
  readonly sent: number
  /** Detaches the connection, and closes it with a code or disconnects it without one. */
  readonly close: (code: number | undefined, reason?: string) => void
}

export interface Turn {
  readonly turnId: string
  readonly content: string
  readonly number: number
  readonly interrupted: Deferred.Deferred<void>
  /** Answers that are awaited from the client, by request. */
  readonly answers: Map<string, Deferred.Deferred<unknown>>
}

/** How an instance ended, which decides how its connections are closed. */
export type End = "stopped" | "crashed" | "reclaimed"

/** The request that created an instance, with the names of its secrets only. */
export interface Creation {
  readonly agentType: string
  readonly deployment: unknown
  readonly environment: Readonly<Record<string, string>>
  readonly secretNames: ReadonlyArray<string>
}

const endings: ReadonlySet<string> = new Set(["turn.completed", "turn.failed", "turn.cancelled"])

/** Turn ids that are kept, so that a repeated message starts no second turn. */
const knownTurns = 1000

/** The state of one agent instance: its events, files, connections and turns. `Agent` decides what it does. */
export class Instance {
  readonly history: EventHistory
  readonly workspace: Workspace
  /** Notified of each change. */
  readonly changes: Changes
  readonly connections = new Set<ClientConnection>()
  readonly waiting: Array<Turn> = []
  private readonly live = new Map<string, Turn>()
  private readonly known = new Set<string>()
  /** Messages that started a turn. */
  turns = 0
  end: End | undefined

  /** A new instance emits its start. */
  constructor(
    readonly id: string,
    readonly creation: Creation,
    private readonly limits: Limits,
    private readonly clock: Clock.Clock,
    parent: Changes
  ) {
    this.changes = new Changes(parent)
    this.history = new EventHistory(limits.history)
    this.workspace = new Workspace(limits)
    this.emit({ type: "instance.starting", instanceId: id })
    this.emit({ type: "instance.ready", instanceId: id })
  }

  now(): number {
    return this.clock.unsafeCurrentTimeMillis()
  }

  emit(event: EventBody): void {
    this.history.append(event, this.now())
    if (endings.has(event.type)) this.live.delete(String(event.turnId))
    this.changes.notify()
  }

  emitFrame(frame: Frame): void {
    this.history.appendFrame(frame)
    this.changes.notify()
  }

  isLive(turn: Turn): boolean {
    return this.live.get(turn.turnId) === turn
  }

  /** Starts a turn by a message. It is idempotent by the turn's id. */
  message(content: string, turnId: string | undefined): void {
    const number = this.turns + 1
    const id = turnId ?? `${this.id}-turn-${number}`
    if (this.known.has(id) || this.end !== undefined) return
    if (this.waiting.length >= this.limits.waitingTurns) {
      const message = `${this.limits.waitingTurns} messages are waiting; this is the limit`
      this.emit({ type: "error", turnId: id, code: "busy", message, retryable: true })
      return
    }
    const turn: Turn = {
      turnId: id,
      content,
      number,
      interrupted: Deferred.unsafeMake(FiberId.none),
      answers: new Map()
    }
    this.waiting.push(turn)
    this.turns = number
    this.live.set(id, turn)
    this.known.add(id)
    if (this.known.size > knownTurns) this.known.delete(this.known.values().next().value!)
    this.changes.notify()
  }

  /** Cancels a turn, by default the oldest one. An unknown or ended one is ignored. */
  interrupt(turnId: string | undefined): void {
    const oldest = this.live.values().next().value
    const turn = turnId === undefined ? oldest : this.live.get(turnId)
    if (turn === undefined) return
    Deferred.unsafeDone(turn.interrupted, Effect.void)
    // The oldest may be running, and is cancelled once it has stopped.
    if (turn !== oldest) this.cancel(turn)
  }

  /** Ends a turn as interrupted, unless it has ended. */
  cancel(turn: Turn): void {
    if (this.isLive(turn)) this.emit({ type: "turn.cancelled", turnId: turn.turnId, reason: "interrupted" })
  }

  /** Registers a request for an answer. The effect waits for the answer. */
  expect(turn: Turn, requestId: string): Effect.Effect<unknown> {
    const answer = Deferred.unsafeMake<unknown>(FiberId.none)
    turn.answers.set(requestId, answer)
    return Deferred.await(answer)
  }

  /** Completes an expected answer; `false` if no turn expects it. */
  answer(requestId: string, answer: unknown): boolean {
    for (const turn of this.live.values()) {
      const waiting = turn.answers.get(requestId)
      if (waiting === undefined) continue
      Deferred.unsafeDone(waiting, Effect.succeed(answer))
      return turn.answers.delete(requestId)
    }
    return false
  }

  attach(connection: ClientConnection): void {
    this.connections.add(connection)
    this.changes.notify()
  }

  detach(connection: ClientConnection): void {
    this.connections.delete(connection)
    this.changes.notify()
  }

  /**
   * Ends the instance. A stopped one cancels its turns and emits its end, a crashed one emits only its failure, and a
   * reclaimed one nothing.
   */
  finish(end: End, reason: string): void {
    if (this.end !== undefined) return
    const instanceId = this.id
    if (end === "stopped") {
      for (const { turnId } of [...this.live.values()]) this.emit({ type: "turn.cancelled", turnId, reason })
      this.emit({ type: "instance.stopping", instanceId })
      this.emit({ type: "instance.stopped", instanceId })
    }
    if (end === "crashed") this.emit({ type: "instance.failed", instanceId, code: "crashed", message: reason })
    this.end = end
    this.live.clear()
    this.changes.notify()
  }

  /** Waits until the instance has ended. */
  get ended(): Effect.Effect<End> {
    return this.changes.until(() => Option.fromNullable(this.end))
  }

  /** Waits until no connection is behind by half of the history. */
  get awaitRoom(): Effect.Effect<void> {
    return this.awaitSentUpTo(() => this.history.last - Math.floor(this.limits.history / 2))
  }

  /** Waits until all events are sent to every connection. */
  get awaitSent(): Effect.Effect<void> {
    return this.awaitSentUpTo(() => this.history.last)
  }

  private awaitSentUpTo(number: () => number): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.isCaughtUp(number())) return Effect.void
      return this.changes
        .until(() => (this.isCaughtUp(number()) ? Option.some(undefined) : Option.none()))
        .pipe(
          Effect.timeoutTo({
            duration: Duration.decode(this.limits.stall),
            onSuccess: () => undefined,
            onTimeout: () => this.closeSlow(number())
          })
        )
    })
  }

  private isCaughtUp(number: number): boolean {
    for (const { sent } of this.connections) if (sent < number) return false
    return true
  }

  /** Closes the connections that are behind. */
  private closeSlow(number: number): void {
    for (const connection of [...this.connections]) {
      if (connection.sent < number) connection.close(1013, "too slow")
    }
  }
}
