/** The client for programs in Effect. */
export * from "../Client/Effect/Client.ts"
