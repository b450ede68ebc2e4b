/** The handlers of the `chat` group, as the port that the gateway implements in `Handlers.ts`. */
import { Context } from "effect"
import * as Endpoints from "../../Http/Endpoints.ts"
import { ChatGroup } from "./Api.ts"

/** Serves chats: a handler for each endpoint. */
export class AiSdk extends Context.Tag("causeway/AiSdk")<AiSdk, Endpoints.Handlers<typeof ChatGroup>>() {}

/** The handlers of the `chat` group. */
export const endpoints = Endpoints.of(ChatGroup, AiSdk)
