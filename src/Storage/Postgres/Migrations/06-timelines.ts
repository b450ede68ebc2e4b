import { identify } from "../Kv/log.sql.ts"

export const statements: ReadonlyArray<string> = ["ALTER TABLE causeway.log ADD COLUMN timeline text", identify]
