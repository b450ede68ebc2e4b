/**
 * Agents that speak AG-UI, as an agent platform: a session has no instance, and each of its turns is a request with its
 * conversation. An agent has its own retry budget and circuit breakers, so that one does not block others.
 */
import * as HttpClient from "@effect/platform/HttpClient"
import { Effect, Layer, Option } from "effect"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import { randomHex } from "../base/RandomHex.ts"
import * as InstanceConnection from "./AgentPlatform/InstanceConnection.ts"
import { ArrivingFrames } from "./AgentPlatform/PlatformSocket.ts"
import * as TypeBreakers from "./AgentPlatform/TypeBreakers.ts"
import * as AgentPlatform from "./AgentPlatform.ts"
import * as Agent from "./AgUiAgent/Agent.ts"
import * as AgentConnection from "./AgUiAgent/AgentConnection.ts"
import { SessionHistory } from "./AgUiAgent/SessionHistory.ts"
import type { Settings } from "./AgUiAgent/Settings.ts"
import * as HealthProbe from "./HealthProbe.ts"
import { eventBytes, unfinishedBytes } from "./PlatformEvent.ts"
import * as UpstreamHttp from "./UpstreamHttp.ts"

export { HistoryUnavailable, SessionHistory } from "./AgUiAgent/SessionHistory.ts"
export { config, isSet, none, type Settings } from "./AgUiAgent/Settings.ts"

const ConnectionError = AgentPlatform.AgentPlatformConnectionError

/** The health of all agents. As long as one of them works, clients may come. */
const joined = (all: ReadonlyArray<HealthProbe.Health>): HealthProbe.Health => {
  const failing = all.find(({ status }) => status !== "ok")
  const status = all.every(health => health.status === "unhealthy") ? "unhealthy" : "degraded"
  const latencyMs = Math.max(...all.map(health => health.latencyMs))
  return failing === undefined ? { ...all[0]!, latencyMs } : { ...failing, status, latencyMs }
}

const makeProbe = (
  client: HttpClient.HttpClient,
  { apiKey, healthUrl }: Settings,
  agents: ReadonlyArray<AgentPlatform.AgentAddress>
) =>
  Effect.gen(function* () {
    const addresses = new Set(agents.map(({ address }) => address))
    const origins = new Set([...addresses].map(address => new URL(address).origin))
    const probes = yield* Effect.forEach(
      Option.match(healthUrl, { onSome: Array.of, onNone: () => addresses }),
      baseUrl => {
        // The key is for the agents alone.
        const key = origins.has(new URL(baseUrl).origin) ? apiKey : Option.none()
        return HealthProbe.make(UpstreamHttp.make(client, { service: "agent", baseUrl, apiKey: key }))
      }
    )
    return Effect.map(Effect.all(probes, { concurrency: "unbounded" }), joined)
  })

const fileless = new AgentPlatform.InvalidFileRequest({
  message: "The agent has no files: it is connected by AG-UI, which has no requests for them"
})

const unknown = (operation: string, message: string) =>
  new ConnectionError({ operation, reason: "status", statusCode: 404, isInDoubt: false, message })

const make = (settings: Settings) =>
  Effect.gen(function* () {
    const client = yield* HttpClient.HttpClient
    const histories = yield* SessionHistory
    const tags = yield* MetricTags.current
    InstanceConnection.register(tags)
    const breakers = TypeBreakers.make(tags)
    const options = {
      ...settings,
      times: { ...Agent.defaultTimes, ...settings.times },
      eventBytes: settings.eventBytes ?? eventBytes.default,
      arriving: new ArrivingFrames(settings.unfinishedBytes ?? unfinishedBytes.default)
    }
    const urls = [...Option.toArray(settings.url).map(url => [null, url] as const), ...settings.urls]
    /** By type; null for all others. */
    const agents = new Map<string | null, Agent.Agent>()
    for (const [type, url] of urls) {
      const upstream = type === null ? "agent_platform" : `agent_platform/${type}`
      agents.set(type, yield* Agent.make(client, { ...options, url, upstream }))
    }
    const addresses = urls.map(([type, url]) => AgentPlatform.addressOf(type, url))
    const probe = yield* makeProbe(client, settings, addresses)
    /** Those that were created and not stopped. After a restart there are none, and sessions create others. */
    const instances = new Map<string, AgentConnection.Options>()

    return AgentPlatform.AgentPlatform.of({
      create: ({ agentType, idempotencyKey, sessionId, tenant = "default" }) =>
        Effect.gen(function* () {
          const agent = agents.get(agentType) ?? agents.get(null)
          if (agent === undefined) {
            return yield* unknown("create", `There is no agent of the type ${JSON.stringify(agentType)}`)
          }
          const instanceId = idempotencyKey ?? (yield* randomHex(4))
          const session = sessionId ?? instanceId
          instances.set(instanceId, {
            // The id of a session is unique within its tenant.
            threadId: `${tenant}-${session}`,
            run: (input, follower) => agent(input, breakers(tenant, agentType), follower),
            conversation: histories.read(tenant, session),
            history: settings.history
          })
          return instanceId
        }),
      stop: instanceId => Effect.sync(() => void instances.delete(instanceId)),
      connect: instanceId =>
        Effect.suspend(() => {
          const instance = instances.get(instanceId)
          if (instance === undefined) return unknown("connect", "There is no such instance")
          return Effect.map(AgentConnection.make(instance), InstanceConnection.ofPort)
        }),
      listFiles: () => fileless,
      readFile: () => fileless,
      fileHistory: () => fileless,
      fileAtIteration: () => fileless,
      probe: Effect.asSome(probe),
      addresses
    })
  })

/** The agents at the addresses of the settings, of which there must be one. */
export const layer = (
  settings: Settings
): Layer.Layer<AgentPlatform.AgentPlatform, never, HttpClient.HttpClient | SessionHistory> =>
  Layer.scoped(AgentPlatform.AgentPlatform, make(settings))
