/**
 * How two nodes know each other: TLS with a pre-shared key (RFC 4279, RFC 5489), which both derive from the secret. A
 * node without the secret gets no further than the handshake, and nobody else can read or change what they send.
 */
import { createHash } from "node:crypto"
import type { TlsOptions } from "node:tls"
import { Redacted } from "effect"

const identity = "causeway"

/**
 * Node knows pre-shared keys in TLS 1.2 alone. The exchange is ephemeral: a secret that leaks later reveals no traffic.
 */
const common = {
  ciphers: "ECDHE-PSK-CHACHA20-POLY1305",
  minVersion: "TLSv1.2",
  maxVersion: "TLSv1.2"
} as const

const keyOf = (secret: Redacted.Redacted): Buffer =>
  createHash("sha256").update("causeway nodes\0").update(Redacted.value(secret)).digest()

/** Milliseconds that a handshake may take. */
const handshakeTimeout = 2000

export const ofServer = (secret: Redacted.Redacted): TlsOptions => {
  const psk = keyOf(secret)
  return { ...common, handshakeTimeout, pskCallback: (_socket, name) => (name === identity ? psk : null) }
}

export const ofClient = (secret: Redacted.Redacted) => {
  const psk = keyOf(secret)
  return {
    ...common,
    pskCallback: () => ({ psk, identity }),
    // There are no certificates: who has the key is the right one.
    checkServerIdentity: () => undefined
  }
}
