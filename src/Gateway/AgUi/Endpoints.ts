/**
 * The handlers of the `agUi` group, as the port that the gateway implements in `Handlers.ts`.
 */
import { Context } from "effect"
import * as Endpoints from "../../Http/Endpoints.ts"
import { AgUiGroup } from "./Api.ts"

/** Serves AG-UI: a handler for each endpoint. */
export class AgUi extends Context.Tag("causeway/AgUi")<AgUi, Endpoints.Handlers<typeof AgUiGroup>>() {}

/** The handlers of the `agUi` group. */
export const endpoints = Endpoints.of(AgUiGroup, AgUi)
