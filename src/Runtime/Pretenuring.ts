/**
 * Turns V8's pretenuring off, for the whole process: its threads share V8's flags.
 *
 * V8 allocates in old space what comes from a place whose objects survived. In a server under load, what is in
 * flight during a scavenge always survives, so the requests' own objects go there, and whatever they refer to lives
 * until the next collection of old space. Only what is compiled afterwards is affected, so this comes first.
 */
import { setFlagsFromString } from "node:v8"

setFlagsFromString("--no-allocation-site-pretenuring")
