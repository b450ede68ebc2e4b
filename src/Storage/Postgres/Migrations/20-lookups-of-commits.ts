import { commitGroup } from "../Kv/commit_group.sql.ts"

export const statements: ReadonlyArray<string> = [commitGroup]
