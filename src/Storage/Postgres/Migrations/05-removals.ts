import { removeEntries } from "../Kv/remove_entries.sql.ts"

export const statements: ReadonlyArray<string> = [removeEntries]
