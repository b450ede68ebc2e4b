/** Runs before each test file, in the process that files share. */
import { it, makeMethods } from "@effect/vitest"

// `layer` of @effect/vitest replaces the methods of this `it`: what an earlier file has left would run tests in its
// layer.
makeMethods(it)
