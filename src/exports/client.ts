/** The client for browsers and Node, in Promises and async iterables, without dependencies. */
export * from "../Client/Client.ts"
