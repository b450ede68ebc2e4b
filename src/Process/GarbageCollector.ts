/**
 * Adjusts V8's garbage collector, for the whole process: its threads share V8's flags.
 *
 * It is imported for that alone, and first, since only what is compiled afterwards is affected. No flag is touched
 * here but those that V8 reads at each collection.
 */
import { availableParallelism } from "node:os"
import { setFlagsFromString } from "node:v8"

// V8 allocates in old space what comes from a place whose objects survived. In a server under load, what is in flight
// during a collection always survives, so the requests' own objects go there, and whatever they refer to lives until
// old space is collected.
setFlagsFromString("--no-allocation-site-pretenuring")

// V8 marks with up to four threads beside the main one, whatever the machine. Where there are not as many processors,
// the main thread waits for its turn behind them, for a quarter of a second at a time.
const processors = availableParallelism()
setFlagsFromString(`--concurrent-marking-max-worker-num=${Math.max(1, processors - 1)}`)
if (processors === 1) setFlagsFromString("--no-parallel-scavenge")
