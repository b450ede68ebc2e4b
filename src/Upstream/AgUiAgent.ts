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

/** What is known of a session's instance. There is nothing of it at the agent. */
interface Instance {
  readonly agent: Agent.Agent
  readonly agentType: string
  readonly tenant: string
  readonly sessionId: string
}

/** The health of all agents. As long as one of them works, clients may come. */
const joined = (all: ReadonlyArray<HealthProbe.Health>): HealthProbe.Health => {
  const failing = all.find(({ status }) => status !== "ok")
  const status = all.every(health => health.status === "unhealthy") ? "unhealthy" : "degraded"
  const latencyMs = Math.max(...all.map(health => health.latencyMs))
  return failing === undefined ? { ...all[0]!, latencyMs } : { ...failing, status, latencyMs }
}

const makeProbe = (client: HttpClient.HttpClient, { apiKey, healthUrl, url, urls }: Settings) =>
  Effect.gen(function* () {
    const addresses = [...new Set([...Option.toArray(url), ...urls.values()])]
    const bases = Option.match(healthUrl, { onSome: base => [base], onNone: () => addresses })
    const origins = new Set(addresses.map(address => new URL(address).origin))
    const probes = yield* Effect.forEach(bases, base => {
      const { origin, pathname } = new URL(base)
      const baseUrl = `${origin}${pathname.replace(/\/+$/, "")}`
      // The key is for the agents alone.
      const key = origins.has(origin) ? apiKey : Option.none()
      return HealthProbe.make(UpstreamHttp.make(client, { service: "agent", baseUrl, apiKey: key }))
    })
    return Effect.map(Effect.all(probes, { concurrency: "unbounded" }), joined)
  })

/** Finds the agent of a type; `undefined` for an unknown type. */
const makeAgents = (client: HttpClient.HttpClient, settings: Settings, times: Agent.Times) =>
  Effect.gen(function* () {
    const arriving = new ArrivingFrames(settings.unfinishedBytes ?? unfinishedBytes.default)
    const options = {
      apiKey: settings.apiKey,
      headers: settings.headers,
      times,
      eventBytes: settings.eventBytes ?? eventBytes.default,
      arriving
    }
    const byType = new Map<string, Agent.Agent>()
    for (const [type, url] of settings.urls) {
      byType.set(type, yield* Agent.make(client, { ...options, url, upstream: `agent_platform/${type}` }))
    }
    const others = Option.isSome(settings.url)
      ? yield* Agent.make(client, { ...options, url: settings.url.value, upstream: "agent_platform" })
      : undefined
    return (agentType: string) => byType.get(agentType) ?? others
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
    const times = { ...Agent.defaultTimes, ...settings.times }
    const agentOf = yield* makeAgents(client, settings, times)
    const probe = yield* makeProbe(client, settings)
    const breakers = TypeBreakers.make(tags)
    /** Those that were created and not stopped. After a restart there are none, and sessions create others. */
    const instances = new Map<string, Instance>()

    const connect = (instanceId: string) =>
      Effect.gen(function* () {
        const instance = instances.get(instanceId)
        if (instance === undefined) return yield* unknown("connect", "There is no such instance")
        const { agent, agentType, sessionId, tenant } = instance
        const connection = yield* AgentConnection.make({
          // The id of a session is unique within its tenant.
          threadId: `${tenant}-${sessionId}`,
          run: (input, follower) => agent(input, breakers(tenant, agentType), follower),
          conversation: histories.read(tenant, sessionId),
          history: settings.history
        })
        return InstanceConnection.ofPort(connection)
      })

    return AgentPlatform.AgentPlatform.of({
      create: ({ agentType, idempotencyKey, sessionId, tenant = "default" }) =>
        Effect.gen(function* () {
          const agent = agentOf(agentType)
          if (agent === undefined) {
            return yield* unknown("create", `There is no agent of the type ${JSON.stringify(agentType)}`)
          }
          const instanceId = idempotencyKey ?? (yield* randomHex(4))
          instances.set(instanceId, { agent, agentType, tenant, sessionId: sessionId ?? instanceId })
          return instanceId
        }),
      stop: instanceId => Effect.sync(() => void instances.delete(instanceId)),
      connect,
      listFiles: () => fileless,
      readFile: () => fileless,
      fileHistory: () => fileless,
      fileAtIteration: () => fileless,
      probe: Effect.asSome(probe),
      addresses: [
        ...Option.toArray(settings.url).map(url => AgentPlatform.addressOf(null, url)),
        ...[...settings.urls].map(([type, url]) => AgentPlatform.addressOf(type, url))
      ]
    })
  })

/** The agents at the addresses of the settings, of which there must be one. */
export const layer = (
  settings: Settings
): Layer.Layer<AgentPlatform.AgentPlatform, never, HttpClient.HttpClient | SessionHistory> =>
  Layer.scoped(AgentPlatform.AgentPlatform, make(settings))
