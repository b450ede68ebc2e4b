/** The settings and limits of sessions. */
import { Config, Duration, Option } from "effect"
import * as Setting from "../../base/Setting.ts"

/** The limits of sessions unless configured. */
export const defaults = {
  /** After this time a running session without subscribers and turns is stopped. */
  idleTimeout: Duration.minutes(30),
  /** The timeout of an activation. */
  activationTimeout: Duration.minutes(1),
  /** Maximum number of sessions of one tenant. */
  perTenant: 10_000,
  /** Maximum number of sessions in memory. Above it, those of the tenant that has the most are evicted. */
  inMemory: 10_000,
  /** Maximum bytes of secrets in memory, for all tenants together. */
  secretBytes: 256 * 1024 * 1024,
  /** Maximum number of concurrent activations, for all tenants together. Others wait. */
  activations: 256,
  /** How long all instances together may take to stop when the gateway shuts down. */
  stopping: Duration.millis(4500)
}

/** The limits of sessions; for their meaning see `defaults`. */
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
    "How long the agent platform may take to start a session's instance",
    "1 minute",
    defaults.activationTimeout
  ),
  perTenant: Setting.integer("LIMIT_SESSIONS", {
    description: "Maximum number of sessions of one tenant",
    default: defaults.perTenant,
    min: 1,
    max: 100_000
  }),
  inMemory: Setting.integer("LIMIT_SESSIONS_IN_MEMORY", {
    description: "Maximum number of sessions in memory (active or in use), for all tenants together",
    default: defaults.inMemory,
    min: 1,
    max: 1_000_000
  }),
  secretBytes: Setting.integer("LIMIT_SECRET_BYTES", {
    description: "Maximum bytes of sessions' secrets in memory, for all tenants together",
    default: defaults.secretBytes,
    min: 1024 * 1024,
    max: 1024 ** 4
  }),
  activations: Setting.integer("LIMIT_ACTIVATIONS", {
    description: "Maximum number of instances that are started at a time, for all tenants together",
    default: defaults.activations,
    min: 1,
    max: 100_000
  }),
  stopping: Config.succeed(defaults.stopping)
})

/** Maximum number of turns that clients may have open in one session. */
export const openTurns = 32

/** How long a message waits for earlier ones and for the connection, once the session is active. */
export const sendTimeout = Duration.seconds(15)

/** How long a reconnection may take before the instance counts as lost. */
export const reconnectTimeout = Duration.minutes(10)

/** The interval at which all sessions are checked for idle ones and for instances to stop. */
export const sweepInterval = Duration.seconds(5)

/**
 * The interval at which a node notifies the owner of a session to which it has subscribers. The owner would stop the
 * session otherwise.
 */
export const subscriberInterval = ({ idleTimeout }: Pick<Settings, "idleTimeout">): Duration.Duration =>
  Duration.min(Duration.times(idleTimeout, 1 / 4), Duration.minutes(5))

/** Lists of sessions that are read concurrently. Each takes milliseconds of the event loop. */
export const concurrentLists = 4

/** Lists of sessions of one tenant that are read concurrently. */
export const concurrentListsOfOne = 2

/** Maximum number of concurrent calls that stop instances in the background. */
export const backgroundCleanups = 4

/** How long an unused session stays in memory. */
export const unusedTtl = Duration.minutes(1)
