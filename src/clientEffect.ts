/** The client for programs in Effect. */
export * from "./EffectClient/Client.ts"
