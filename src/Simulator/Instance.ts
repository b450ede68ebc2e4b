import { type Clock, Deferred, Duration, Effect, FiberId, Option, Queue } from "effect"
import { Changes } from "./Changes.ts"
import { type EventBody, EventHistory, type Frame } from "./EventHistory.ts"
import type { Limits } from "./Options.ts"
import { Workspace } from "./Workspace.ts"

/** A client's connection as its instance sees it. */
export interface Attached {
  /** The number of the last frame that was handed to the network. */
  readonly sent: number
  /** Detaches the connection and cuts it, or closes it with a code. */
  readonly close: (code: number | undefined, reason?: string) => void
}

/** A message that was taken in, until its turn has ended. */
export interface Turn {
  readonly turnId: string
  readonly content: string
  readonly number: number
  readonly interrupted: Deferred.Deferred<void>
  /** Answers that the client may give, by request. */
  readonly answers: Map<string, Deferred.Deferred<unknown>>
}

/** How an instance came to its end, which says how its connections are closed. */
export type End = "stopped" | "crashed" | "reclaimed"

/** What an instance was created for. Secrets are known by name only. */
export interface Creation {
  readonly agentType: string
  readonly deployment: unknown
  readonly environment: Readonly<Record<string, string>>
  readonly secretNames: ReadonlyArray<string>
}

const endings: ReadonlySet<string> = new Set(["turn.completed", "turn.failed", "turn.cancelled"])

/** How many ended turns are remembered, so that a message that is sent again starts no second turn. */
const knownTurns = 1000

/** One agent instance: its events, files, connections and turns. What it does next is the agent's business. */
export class Instance {
  readonly history: EventHistory
  readonly workspace: Workspace
  /** Told of each change below. */
  readonly changes: Changes
  readonly connections = new Set<Attached>()
  readonly waiting: Queue.Queue<Turn>
  private readonly live = new Map<string, Turn>()
  private readonly known = new Set<string>()
  private turnCount = 0
  private endedAs: End | undefined

  private constructor(
    readonly id: string,
    readonly creation: Creation,
    private readonly limits: Limits,
    private readonly clock: Clock.Clock,
    waiting: Queue.Queue<Turn>,
    whole: Changes
  ) {
    this.changes = new Changes(whole)
    this.history = new EventHistory(limits.history)
    this.workspace = new Workspace(limits)
    this.waiting = waiting
  }

  /** A new instance that has told of its start; its changes are told to `whole`, too. */
  static make(id: string, creation: Creation, limits: Limits, whole: Changes): Effect.Effect<Instance> {
    return Effect.gen(function* () {
      const instance = new Instance(
        id,
        creation,
        limits,
        yield* Effect.clock,
        yield* Queue.dropping<Turn>(limits.waitingTurns),
        whole
      )
      instance.emit({ type: "instance.starting", instanceId: id })
      instance.emit({ type: "instance.ready", instanceId: id })
      return instance
    })
  }

  get turns(): number {
    return this.turnCount
  }

  get end(): End | undefined {
    return this.endedAs
  }

  now(): number {
    return this.clock.unsafeCurrentTimeMillis()
  }

  emit(event: EventBody): void {
    this.history.append(event, this.now())
    if (endings.has(event.type)) this.live.delete(String(event.turnId))
    this.changes.notify()
  }

  garble(frame: Frame): void {
    this.history.appendFrame(frame)
    this.changes.notify()
  }

  /** Whether the turn still lacks its ending event. */
  isLive(turn: Turn): boolean {
    return this.live.get(turn.turnId) === turn
  }

  /** Takes a message in; one whose turn is known already changes nothing. */
  message(content: string, turnId: string | undefined): void {
    const number = this.turnCount + 1
    const id = turnId ?? `${this.id}-turn-${number}`
    if (this.known.has(id) || this.endedAs !== undefined) return
    const turn: Turn = {
      turnId: id,
      content,
      number,
      interrupted: Deferred.unsafeMake(FiberId.none),
      answers: new Map()
    }
    if (!this.waiting.unsafeOffer(turn)) {
      const message = `${this.limits.waitingTurns} messages are waiting already`
      this.emit({ type: "error", turnId: id, code: "busy", message, retryable: true })
      return
    }
    this.turnCount = number
    this.live.set(id, turn)
    this.known.add(id)
    if (this.known.size > knownTurns) this.known.delete(this.known.values().next().value!)
    this.changes.notify()
  }

  /** Cancels a turn, or the oldest one where none is named. An unknown or ended one changes nothing. */
  interrupt(turnId: string | undefined): void {
    const oldest = this.live.values().next().value
    const turn = turnId === undefined ? oldest : this.live.get(turnId)
    if (turn === undefined) return
    Deferred.unsafeDone(turn.interrupted, Effect.void)
    // The oldest may be at work, and is cancelled when that has stopped.
    if (turn !== oldest) this.cancel(turn)
  }

  /** Ends a turn as interrupted, unless it has ended. */
  cancel(turn: Turn): void {
    if (this.isLive(turn)) this.emit({ type: "turn.cancelled", turnId: turn.turnId, reason: "interrupted" })
  }

  /** Waits for a turn's answer, from the moment this is called. */
  expect(turn: Turn, requestId: string): Effect.Effect<unknown> {
    const answer = Deferred.unsafeMake<unknown>(FiberId.none)
    turn.answers.set(requestId, answer)
    return Deferred.await(answer)
  }

  /** Gives the answer a turn waits for; `false` where none waits for it. */
  answer(requestId: string, answer: unknown): boolean {
    for (const turn of this.live.values()) {
      const waiting = turn.answers.get(requestId)
      if (waiting === undefined) continue
      Deferred.unsafeDone(waiting, Effect.succeed(answer))
      return turn.answers.delete(requestId)
    }
    return false
  }

  attach(connection: Attached): void {
    this.connections.add(connection)
    this.changes.notify()
  }

  detach(connection: Attached): void {
    this.connections.delete(connection)
    this.changes.notify()
  }

  /**
   * Ends the instance. A stopped one cancels its turns and says goodbye, a crashed one only says why, a reclaimed
   * one is gone without a word.
   */
  finish(end: End, reason: string): void {
    if (this.endedAs !== undefined) return
    const instanceId = this.id
    if (end === "stopped") {
      for (const { turnId } of [...this.live.values()]) this.emit({ type: "turn.cancelled", turnId, reason })
      this.emit({ type: "instance.stopping", instanceId })
      this.emit({ type: "instance.stopped", instanceId })
    }
    if (end === "crashed") this.emit({ type: "instance.failed", instanceId, code: "crashed", message: reason })
    this.endedAs = end
    this.live.clear()
    this.changes.notify()
  }

  /** Waits until the instance has ended. */
  get ended(): Effect.Effect<End> {
    return this.changes.until(() => Option.fromNullable(this.endedAs))
  }

  /** Waits until no connection is so far behind that the events it lacks may soon be forgotten. */
  get room(): Effect.Effect<void> {
    return this.caughtUpTo(() => this.history.last - Math.floor(this.limits.history / 2))
  }

  /** Waits until every connection has had all there is. */
  get settled(): Effect.Effect<void> {
    return this.caughtUpTo(() => this.history.last)
  }

  private caughtUpTo(number: () => number): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.isCaughtUp(number())) return Effect.void
      return this.changes
        .until(() => (this.isCaughtUp(number()) ? Option.some(undefined) : Option.none()))
        .pipe(
          Effect.timeoutTo({
            duration: Duration.decode(this.limits.stall),
            onSuccess: () => undefined,
            onTimeout: () => this.shed(number())
          })
        )
    })
  }

  private isCaughtUp(number: number): boolean {
    for (const { sent } of this.connections) if (sent < number) return false
    return true
  }

  /** Closes the connections that take nothing. */
  private shed(number: number): void {
    for (const connection of [...this.connections]) {
      if (connection.sent < number) connection.close(1013, "too slow")
    }
  }
}
