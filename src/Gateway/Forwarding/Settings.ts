/**
 * How nodes that share a session database reach each other.
 */
import { isIP } from "node:net"
import { Config, ConfigError, Either, Option, Redacted } from "effect"
import * as Setting from "../../base/Setting.ts"

/** An address of a node. The host is a name or an IP address without brackets. */
export interface NodeAddress {
  readonly host: string
  /** 0 for any free port. */
  readonly port: number
}

/** The settings of a node that forwards requests. */
export interface Settings {
  /** Where this node listens, and where other nodes reach it. */
  readonly address: NodeAddress
  /** The same for all nodes. */
  readonly secret: Redacted.Redacted
}

const pattern = /^(?:\[([0-9a-fA-F:]+)\]|([^\s:/[\]@]+)):(\d{1,5})$/

/** Parses `<host>:<port>`; an IPv6 address is in brackets. */
export const parseAddress = (text: string): Option.Option<NodeAddress> => {
  const match = pattern.exec(text)
  if (match === null) return Option.none()
  const host = match[1] ?? match[2]!
  const port = Number(match[3])
  if ((match[1] !== undefined && isIP(host) !== 6) || port > 65_535) return Option.none()
  return Option.some({ host, port })
}

/** `<host>:<port>`; an IPv6 address is put in brackets. */
export const formatAddress = ({ host, port }: NodeAddress): string =>
  isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`

/** Whether an address is the wildcard address of a machine. A node that connected to it would reach itself. */
const isUnspecified = (host: string): boolean => isIP(host) !== 0 && /^[0.:]+$/.test(host)

/** Minimum characters of the secret. Short secrets can be guessed from recorded traffic. */
const minSecretChars = 32

const address: Config.Config<Option.Option<NodeAddress>> = Setting.declare(
  "NODE_ADDRESS",
  {
    description:
      "With PostgreSQL: address at which other nodes reach this one to forward requests; requires NODE_SECRET",
    allowed: "<host>:<port> that other nodes can connect to, so neither 0.0.0.0 nor [::]",
    default: Option.none<NodeAddress>(),
    shown: "none"
  },
  text =>
    parseAddress(text).pipe(
      Option.filter(({ host }) => !isUnspecified(host)),
      Option.map(Option.some)
    )
)

const secret: Config.Config<Option.Option<Redacted.Redacted>> = Setting.declare(
  "NODE_SECRET",
  {
    description: "Secret with which nodes authenticate each other, the same for all",
    allowed: `text of ${minSecretChars} characters or more, used exactly as given`,
    default: Option.none<Redacted.Redacted>(),
    shown: "none"
  },
  text => (text.length < minSecretChars ? Option.none() : Option.some(Option.some(Redacted.make(text)))),
  true,
  true
)

/** The settings as configuration variables; none if nodes do not forward requests. */
export const config: Config.Config<Option.Option<Settings>> = Config.all({ address, secret }).pipe(
  Config.mapOrFail(({ address, secret }) => {
    if (Option.isSome(address) === Option.isSome(secret)) return Either.right(Option.all({ address, secret }))
    const [missing, given] = Option.isNone(address) ? ["NODE_ADDRESS", "NODE_SECRET"] : ["NODE_SECRET", "NODE_ADDRESS"]
    return Either.left(ConfigError.InvalidData([missing], `it must be set, as ${given} is`))
  })
)
