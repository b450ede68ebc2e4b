/** Writes the generated parts of docs/protocol.md anew: `npx tsx scripts/generate-protocol.ts`. */
import { readFileSync, writeFileSync } from "node:fs"
import { render } from "./protocol/Tables.ts"

const page = new URL("../docs/protocol.md", import.meta.url)

writeFileSync(page, render(readFileSync(page, "utf8")))
