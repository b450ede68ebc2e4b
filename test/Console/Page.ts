/** Modules of the console that are tested outside a browser. */
import { fileURLToPath } from "node:url"

/** Where a module lies. It is imported by this, as its types are those of a browser. */
export const sourceOf = (file: string): string => fileURLToPath(new URL(`../../src/Console/${file}`, import.meta.url))
