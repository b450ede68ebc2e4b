/**
 * What tests of an application need: the ports in memory, simulated upstream services on real sockets, and virtual time
 * over real sockets. `causewayd/testing`; see `docs/embed/testing.md`.
 */
export * as SessionEventsInMemory from "../Gateway/SessionEvents/Memory.ts"
export * as Simulator from "../Simulator/Simulator.ts"
export * as AgentPlatformInMemory from "../Simulator/Testing/AgentPlatform.ts"
export * as InferenceInMemory from "../Simulator/Testing/Inference.ts"
export * as Time from "../Simulator/Testing/Time.ts"
export * as StoreInMemory from "../Storage/Memory.ts"
