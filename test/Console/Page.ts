/** Modules of the console that are tested outside a browser. */
import { fileURLToPath } from "node:url"

/** The path of a module. It is imported by path, because its types are those of a browser. */
export const sourceOf = (file: string): string => fileURLToPath(new URL(`../../src/Console/${file}`, import.meta.url))
