/**
 * What tests of an application need: the ports in memory, simulated upstream services on real sockets, and virtual time
 * over real sockets. `causewayd/testing`; see `docs/testing.md`.
 */
export * as SessionEventsInMemory from "./Gateway/SessionEvents/Memory.ts"
export * as Simulator from "./Simulator/Simulator.ts"
export * as StoreInMemory from "./Storage/Memory.ts"
export * as AgentPlatformInMemory from "./Testing/AgentPlatform.ts"
export * as InferenceInMemory from "./Testing/Inference.ts"
export * as Time from "./Testing/Time.ts"
