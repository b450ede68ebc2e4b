/**
 * Sets flags of V8's garbage collector, which all threads of the process share.
 *
 * It is imported first and for its effect alone, since the flags affect only code that is compiled afterwards. V8 reads
 * all flags that are set here at each collection.
 */
import { availableParallelism } from "node:os"
import { setFlagsFromString } from "node:v8"

// V8 allocates objects in old space if earlier objects of the same allocation site survived. In a server under load,
// requests in flight survive a collection, so later requests would be allocated there too, and with all that they refer
// to would live until the next major collection.
setFlagsFromString("--no-allocation-site-pretenuring")

// V8 marks with up to four threads beside the main one on any machine. With fewer processors the main thread waits for
// them, up to a quarter of a second at a time.
const processors = availableParallelism()
setFlagsFromString(`--concurrent-marking-max-worker-num=${Math.max(1, processors - 1)}`)
if (processors === 1) setFlagsFromString("--no-parallel-scavenge")
