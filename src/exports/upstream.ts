/**
 * Calls to other services: timeouts, retries within a budget and circuit breakers for any of them, and the clients of
 * the agent platform and the inference proxy.
 */
export * as AgentPlatform from "../Upstream/AgentPlatform.ts"
export * as AgUiAgent from "../Upstream/AgUiAgent.ts"
export * as HealthProbe from "../Upstream/HealthProbe.ts"
export * as Inference from "../Upstream/Inference.ts"
export * as PlatformEvent from "../Upstream/PlatformEvent.ts"
export * as CircuitBreaker from "../Upstream/Resilience/CircuitBreaker.ts"
export * as CircuitBreakerState from "../Upstream/Resilience/CircuitBreakerState.ts"
export * as KeyedBreakers from "../Upstream/Resilience/KeyedBreakers.ts"
export * as Retries from "../Upstream/Resilience/Retries.ts"
export * as UpstreamFailure from "../Upstream/Resilience/UpstreamFailure.ts"
export * as Resilience from "../Upstream/Resilience.ts"
export * as UpstreamClients from "../Upstream/UpstreamClients.ts"
export * as UpstreamHttp from "../Upstream/UpstreamHttp.ts"
export * as Workspace from "../Upstream/Workspace.ts"
