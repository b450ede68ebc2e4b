import { Config, Context } from "effect"
import * as Setting from "../../Setting.ts"

/** What followers of the change log may cost at most. */
export interface FollowLimitsShape {
  /** Most followers at a time: polls that wait, event streams and WebSockets together. */
  readonly watchers: number
  /**
   * Bytes that may lie unsent for one WebSocket before it gets nothing more. What is held for a client is bounded by
   * this and one page of the log.
   */
  readonly unsentBytes: number
}

const defaults: FollowLimitsShape = { watchers: 10_000, unsentBytes: 1024 * 1024 }

/** The limits in force: these defaults, unless a layer says otherwise. */
export class FollowLimits extends Context.Reference<FollowLimits>()("causeway/FollowLimits", {
  defaultValue: (): FollowLimitsShape => defaults
}) {}

/** Each limit as a configuration variable. */
export const config: Config.Config<FollowLimitsShape> = Config.all({
  watchers: Setting.integer("LIMIT_WATCHERS", {
    description: "Most followers of the change log at a time: waiting polls, event streams and WebSockets",
    default: defaults.watchers,
    min: 1,
    max: 1_000_000
  }),
  unsentBytes: Setting.integer("LIMIT_UNSENT_BYTES", {
    description: "Bytes that may lie unsent for a WebSocket that follows the change log before it gets nothing more",
    default: defaults.unsentBytes,
    min: 1024,
    max: 64 * 1024 * 1024
  })
})
