/**
 * The clients of all upstream services, over the `HttpClient` in the context.
 */
import type * as HttpClient from "@effect/platform/HttpClient"
import { Layer } from "effect"
import * as AgentPlatformClient from "./AgentPlatform/AgentPlatformClient.ts"
import * as PlatformSocket from "./AgentPlatform/PlatformSocket.ts"
import type * as AgentPlatform from "./AgentPlatform.ts"
import * as AgUiAgent from "./AgUiAgent.ts"
import * as Inference from "./Inference.ts"
import * as InferenceClient from "./InferenceClient.ts"

/** Provides the clients of the agent platform and the inference proxy by their settings. */
export const layer = (settings: {
  readonly agentPlatform: AgentPlatform.Settings
  /** Without it there is no inference. */
  readonly inference?: Inference.Settings
}): Layer.Layer<AgentPlatform.AgentPlatform | Inference.Inference, never, HttpClient.HttpClient> =>
  Layer.mergeAll(
    Layer.provide(AgentPlatformClient.layer(settings.agentPlatform), PlatformSocket.layer(settings.agentPlatform)),
    InferenceClient.layer(settings.inference ?? Inference.none)
  )

/** The same with AG-UI agents in place of an agent platform; see {@link AgUiAgent}. */
export const layerAgents = (settings: {
  readonly agents: AgUiAgent.Settings
  /** Without it there is no inference. */
  readonly inference?: Inference.Settings
}): Layer.Layer<
  AgentPlatform.AgentPlatform | Inference.Inference,
  never,
  HttpClient.HttpClient | AgUiAgent.SessionHistory
> => Layer.merge(AgUiAgent.layer(settings.agents), InferenceClient.layer(settings.inference ?? Inference.none))
