import { pruneCommits } from "../Kv/prune_commits.sql.ts"

export const statements: ReadonlyArray<string> = [
  "CREATE INDEX commits_by_age ON causeway.commits (at) WHERE result IS NOT NULL",
  "CREATE INDEX fences_by_age ON causeway.commits (at) WHERE result IS NULL",
  "INSERT INTO causeway.positions (name, id, up_to) VALUES ('commits', 1, 0)",
  pruneCommits
]
