/**
 * Authentication between nodes: TLS with a pre-shared key (RFC 4279, RFC 5489), which both derive from the secret. The
 * handshake of a node without the secret fails, and no other process can read or change the traffic.
 */
import { createHash } from "node:crypto"
import type { TlsOptions } from "node:tls"
import { Duration, Redacted } from "effect"

const identity = "causeway"

/**
 * Node.js supports pre-shared keys in TLS 1.2 only. The exchange is ephemeral: a secret that leaks later reveals no traffic.
 */
const common = {
  ciphers: "ECDHE-PSK-CHACHA20-POLY1305",
  minVersion: "TLSv1.2",
  maxVersion: "TLSv1.2"
} as const

const keyOf = (secret: Redacted.Redacted): Buffer =>
  createHash("sha256").update("causeway nodes\0").update(Redacted.value(secret)).digest()

/** An option of `node:tls`, in milliseconds. */
const handshakeTimeout = Duration.toMillis("2 seconds")

/** Options of a server that accepts only nodes with the secret. */
export const ofServer = (secret: Redacted.Redacted): TlsOptions => {
  const psk = keyOf(secret)
  return { ...common, handshakeTimeout, pskCallback: (_socket, name) => (name === identity ? psk : null) }
}

/** Options of connections to a server with the secret; a handshake with any other server fails. */
export const ofClient = (secret: Redacted.Redacted) => {
  const psk = keyOf(secret)
  return {
    ...common,
    pskCallback: () => ({ psk, identity }),
    // There are no certificates: the key identifies the node.
    checkServerIdentity: () => undefined
  }
}
