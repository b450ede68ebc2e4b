import { Effect, Option, Redacted } from "effect"
import type * as AgentPlatform from "../Upstream/AgentPlatform.ts"
import * as Inference from "../Upstream/Inference.ts"
import * as Simulator from "./Simulator.ts"

/** The upstream services that are configured. */
export interface Upstreams {
  readonly agentPlatform: AgentPlatform.Settings
  readonly inference: Inference.Settings
}

const isSet = ({ apiKey, url }: Inference.Settings): boolean => Option.isSome(apiKey) || url !== Inference.defaultUrl

/**
 * Upstream services for development: those that are configured, and the simulator for the others. It runs until the
 * scope closes, slowly enough for people to follow a turn.
 */
export const simulatedUpstreams = ({ agentPlatform, inference }: Upstreams) =>
  Effect.gen(function* () {
    if (Option.isSome(agentPlatform.url) && isSet(inference)) return { agentPlatform, inference }
    const simulator = yield* Simulator.make({ pace: "20 millis" })
    return {
      agentPlatform: Option.isSome(agentPlatform.url)
        ? agentPlatform
        : { ...agentPlatform, url: Option.some(simulator.platformUrl) },
      // The simulated proxy takes any credential; without one there is no inference.
      inference: isSet(inference)
        ? inference
        : { url: simulator.inferenceUrl, apiKey: Option.some(Redacted.make("simulated")) }
    }
  })
