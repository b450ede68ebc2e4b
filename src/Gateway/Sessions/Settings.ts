import { Config, Duration, Option } from "effect"
import * as Setting from "../../Setting.ts"

export const defaults = {
  /** After which a running session without subscribers and turns is stopped. */
  idleTimeout: Duration.minutes(30),
  /** The time limit of an activation. */
  activationTimeout: Duration.minutes(1),
  /** Sessions of one tenant; one more is refused. */
  perTenant: 10_000,
  /** Sessions in memory, over all tenants; beyond, those of the tenant that has the most are evicted. */
  inMemory: 10_000,
  /** Bytes of secrets in memory, over all tenants. */
  secretBytes: 256 * 1024 * 1024,
  /** Concurrent activations, over all tenants; more wait. */
  activations: 256,
  /** How long all instances together may take to stop when the gateway shuts down. */
  stopping: Duration.millis(4500)
}

export interface Settings extends Readonly<typeof defaults> {}

const duration = (name: string, description: string, shown: string, otherwise: Duration.Duration) =>
  Setting.optionalDuration(name, { description, shown }).pipe(Config.map(Option.getOrElse(() => otherwise)))

/** The settings as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  idleTimeout: duration(
    "SESSION_IDLE_TIMEOUT",
    "An active session without subscribers or turns is deactivated after this time",
    "30 minutes",
    defaults.idleTimeout
  ),
  activationTimeout: duration(
    "SESSION_ACTIVATION_TIMEOUT",
    "How long the agent platform may take to bring a session's instance up",
    "1 minute",
    defaults.activationTimeout
  ),
  perTenant: Setting.integer("LIMIT_SESSIONS", {
    description: "Most sessions of one tenant",
    default: defaults.perTenant,
    min: 1,
    max: 100_000
  }),
  inMemory: Setting.integer("LIMIT_SESSIONS_IN_MEMORY", {
    description: "Most sessions that are active or looked at, over all tenants",
    default: defaults.inMemory,
    min: 1,
    max: 1_000_000
  }),
  secretBytes: Setting.integer("LIMIT_SECRET_BYTES", {
    description: "Bytes of sessions' secrets in memory, over all tenants",
    default: defaults.secretBytes,
    min: 1024 * 1024,
    max: 1024 ** 4
  }),
  activations: Setting.integer("LIMIT_ACTIVATIONS", {
    description: "Most instances that are brought up at a time, over all tenants",
    default: defaults.activations,
    min: 1,
    max: 100_000
  }),
  stopping: Config.succeed(defaults.stopping)
})

/** Turns that clients may have open in one session. */
export const openTurns = 32

/** How long a message waits for those before it and for the connection, once the session is active. */
export const sendLimit = Duration.seconds(15)

/** How long a connection may be lost before its instance counts as lost. */
export const longestReconnection = Duration.minutes(10)

/** How often all sessions are visited: for idle ones, and for instances to stop. */
export const sweepInterval = Duration.seconds(5)

/** Lists of sessions that are read concurrently, in all and of one tenant: each takes milliseconds of the event loop. */
export const concurrentLists = 4
export const concurrentListsOfOne = 2

/** Calls in progress that stop instances in the background. */
export const backgroundCleanups = 4

/** How long a session that nobody uses stays in memory. */
export const unusedTtl = Duration.minutes(1)
