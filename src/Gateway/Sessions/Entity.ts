/** One session in memory, put together of its parts. */
import * as GatewayMetrics from "../GatewayMetrics.ts"
import type { EventBody } from "../Protocol/Event.ts"
import type { LostPart, Session } from "../Protocol/Fields.ts"
import type { Opened } from "../SessionEvents.ts"
import type { Frame } from "../Sessions.ts"
import { InstanceLifecycle } from "./Instance/InstanceLifecycle.ts"
import { LaunchConfiguration } from "./Instance/LaunchConfiguration.ts"
import { PlatformInstances } from "./Instance/PlatformInstances.ts"
import { TurnCommands } from "./Instance/TurnCommands.ts"
import { SessionCore, type Shared } from "./Session/SessionCore.ts"
import { type SessionRecord, toView } from "./Session/SessionRecords.ts"
import type { SessionState, Update } from "./Session/SessionState.ts"
import { SessionTitle } from "./Session/Titles.ts"

/** One session in memory, made of parts that keep their state to themselves. */
export class Entity extends SessionCore {
  readonly configuration: LaunchConfiguration
  readonly lifecycle: InstanceLifecycle
  readonly commands: TurnCommands
  readonly instances: PlatformInstances
  private readonly title: SessionTitle

  /** `parts`: those of the launch configuration that are stored. */
  constructor(
    shared: Shared,
    record: SessionRecord,
    history: Opened,
    state: SessionState,
    parts: ReadonlyArray<LostPart> = []
  ) {
    super(shared, record, history, state)
    this.configuration = new LaunchConfiguration(this, parts)
    this.instances = new PlatformInstances(this, this.configuration)
    this.lifecycle = new InstanceLifecycle(this, this.configuration, this.instances)
    this.title = new SessionTitle(this)
    this.commands = new TurnCommands(this, this.lifecycle, content => this.title.onMessage(content))
  }

  /** The session as clients see it. */
  view(): Session {
    const { activity, lastEventAt } = this.journal.activity()
    return toView(this.toRecord(), this.configuration.losses, { ...activity, lastEventAt })
  }

  get needsSecrets(): boolean {
    return this.lifecycle.isActivating
  }

  override giveUp(): void {
    if (this.isGivenUp) return
    super.giveUp()
    this.shared.run(this.lifecycle.abandon())
  }

  loseSecrets(): void {
    this.instances.loseSecrets()
  }

  /** Whether it can be evicted without loss. */
  get isEvictable(): boolean {
    return !this.hasSubscribers && this.isQuiescent
  }

  /** Whether it can be evicted apart from its subscribers. */
  get isQuiescent(): boolean {
    const { instance, pendingStops, turns } = this.state
    return (
      !this.isUsed &&
      !this.lifecycle.isBusy &&
      instance === null &&
      pendingStops.length === 0 &&
      turns.open.size === 0 &&
      !this.shared.records.isDirty(this) &&
      !this.isRunning
    )
  }

  /** Whether its instance runs, is not followed, and was not used since `time`, in monotonic milliseconds. */
  isIdleSince(time: number): boolean {
    return this.isRunning && !this.isFollowed && this.state.turns.open.size === 0 && this.isUnusedSince(time)
  }

  protected override onUpdate({ events }: Update, frames: ReadonlyArray<Frame>): void {
    for (const [index, event] of events.entries()) this.onEvent(event, frames[index]!.seq)
  }

  private onEvent(event: EventBody, seq: number): void {
    switch (event.type) {
      case "turn_started":
        return GatewayMetrics.turns.started.unsafeUpdate(1, this.shared.tags)
      case "question_requested":
      case "approval_requested":
        return this.commands.openRequest(event.requestId, seq, event.turnId)
      case "question_resolved":
      case "approval_resolved":
        return this.commands.closeRequest(event.requestId)
      case "session_state":
        this.amend()
        // A report of the instance may be `activating` while the session runs.
        if (!this.isRunning) this.commands.closeRequests()
        return this.touch()
      case "turn_completed":
        GatewayMetrics.turns.completed.unsafeUpdate(1, this.shared.tags)
        if (!this.record.titled) this.title.finish()
        return this.touch()
      case "turn_errored":
        GatewayMetrics.turns.errored.unsafeUpdate(1, this.shared.tags)
        return this.touch()
      case "turn_interrupted":
        return this.touch()
    }
  }
}
