import { layer } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import type { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import type { Store } from "../../src/Kv/Store.ts"
import type { Transport } from "../Harness.ts"
import { batches } from "./Http/Batches.ts"
import { bodies } from "./Http/Bodies.ts"
import { streams } from "./Http/ChangeStreams.ts"
import { polls } from "./Http/Changes.ts"
import { conditions } from "./Http/Conditions.ts"
import { credentials } from "./Http/Credentials.ts"
import { endings } from "./Http/Endings.ts"
import { entries } from "./Http/Entries.ts"
import { epochs } from "./Http/Epochs.ts"
import { expiry } from "./Http/Expiry.ts"
import { fields } from "./Http/Fields.ts"
import { type Check, Site, site } from "./Http/Fixture.ts"
import { compression } from "./Http/Gzip.ts"
import { idempotency } from "./Http/Idempotency.ts"
import { initial } from "./Http/Initial.ts"
import { lists } from "./Http/Lists.ts"
import { names } from "./Http/Names.ts"
import { namespaces } from "./Http/Namespaces.ts"
import * as Outage from "./Http/Outage.ts"
import { prefixDeletes } from "./Http/PrefixDeletes.ts"
import { races, rows } from "./Http/Races.ts"
import { reads } from "./Http/Reads.ts"
import { retention } from "./Http/Retention.ts"
import { routing } from "./Http/Routing.ts"
import { values } from "./Http/Values.ts"

type AnyStore = Layer.Layer<Store | ChangeLog, unknown>

type Parts = Readonly<Record<string, (check: Check) => void>>

/** What is decided before the store is asked. */
export const ofTransport: Parts = { bodies, routing, credentials, fields }

/** The change log: both groups of cases share one service. */
const polling = (check: Check) => {
  polls(check)
  streams(check)
}

export const ofStore: Parts = {
  entries,
  names,
  values,
  conditions,
  expiry,
  lists,
  namespaces,
  reads,
  prefixDeletes,
  idempotency,
  compression,
  batches,
  polling,
  epochs,
  initial,
  retention,
  races
}

/** What each combination of a transport and a backend passes in `npm test`; it passes all in `npm run test:system`. */
export const essential: Parts = { entries, conditions, batches, polling }

const outages: ReadonlyArray<readonly [string, AnyStore, (check: Check) => void]> = [
  ["the store is unavailable", Outage.unavailable, Outage.duringOutage],
  ["the store fails at once", Outage.failingAtOnce, Outage.duringOutage],
  ["the store is busy", Outage.busy, Outage.whileBusy],
  ["the store is busy, and says so later", Outage.busyLater, Outage.whileBusy],
  ["the store has a bug", Outage.broken, Outage.whenBroken],
  ["the store has a bug, and says so later", Outage.brokenLater, Outage.whenBroken],
  ["the store has a bug, and throws it", Outage.brokenAtOnce, Outage.whenBroken],
  ["the store has a bug, and throws it before it waits", Outage.brokenAtRegistration, Outage.whenBroken],
  ["the store fails half-way", Outage.failingHalfWay, Outage.whenCut]
]

/** Registers cases that share one service over the network. */
const serving = (title: string, transport: Transport, store: AnyStore, register: (check: Check) => void): void => {
  // Some cases cause errors in the log on purpose.
  const quiet = Logger.remove(Logger.defaultLogger)
  layer(Layer.provide(Layer.scoped(Site, site(transport, store)), quiet), { excludeTestServices: true })(title, it => {
    register((name, body) => it.scoped(name, () => Effect.gen(body)))
  })
}

/**
 * The conformance suite of the HTTP interface: each part gets a service over an empty store, built from `store`.
 */
export const httpSuite = (transport: Transport, name: string, store: AnyStore, parts: Parts): void => {
  for (const [part, register] of Object.entries(parts)) {
    serving(`${transport.name}, ${name}: ${part}`, transport, store, register)
  }
}

/** The conformance suite of servers that process the requests of a connection in order. */
export const rowSuite = (transport: Transport, name: string, store: AnyStore): void => {
  serving(`${transport.name}, ${name}: requests in a row`, transport, store, rows)
}

/** The conformance suite of the service's own server. */
export const endingSuite = (transport: Transport, name: string, store: AnyStore): void => {
  serving(`${transport.name}, ${name}: endings`, transport, store, endings)
}

/** The conformance suite of the HTTP interface while the store fails. */
export const outageSuite = (transport: Transport): void => {
  for (const [what, store, register] of outages) serving(`${transport.name}: ${what}`, transport, store, register)
}
