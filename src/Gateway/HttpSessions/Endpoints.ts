/**
 * The handlers of the `sessions` group, as the port that the gateway implements in `Handlers.ts`.
 */
import { Context } from "effect"
import * as Endpoints from "../../Http/Endpoints.ts"
import { SessionsGroup } from "./Api.ts"

/** Serves sessions over HTTP: a handler for each endpoint. */
export class HttpSessions extends Context.Tag("causeway/HttpSessions")<
  HttpSessions,
  Endpoints.Handlers<typeof SessionsGroup>
>() {}

/** The handlers of the `sessions` group. */
export const endpoints = Endpoints.of(SessionsGroup, HttpSessions)
