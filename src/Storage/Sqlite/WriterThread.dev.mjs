// Starts the writing thread from its source: a thread does not inherit the loader of the one that starts it.
import { register } from "tsx/esm/api"

register()
await import("./WriterThread.ts")
