/** Files and folders that `Vocabulary.test.ts` does not check yet. A path is removed once it has none of the words. */
export const unswept: ReadonlyArray<string> = [
  // Command line and clients
  "docs/cli.md",
  "docs/client.md",
  "src/Client",
  "src/CommandLine",
  "test/Client",
  "test/CommandLine",

  // Console and OpenAPI
  "docs/console.md",
  "src/Console",
  "src/EffectClient",
  "src/OpenApi",
  "src/Pages",
  "test/Console",
  "test/EffectClient",
  "test/OpenApi",

  // PostgreSQL
  "docs/performance-postgresql.md",
  "docs/postgresql.md",
  "src/Storage/Postgres",
  "src/Storage/Postgres.ts",
  "src/Storage/PostgresOnDemand.ts",
  "src/Storage/StoreCopy",
  "src/Storage/StoreCopy.ts",
  "test/Storage/Postgres",
  "test/Storage/StoreCopy",
  "test/Storage/StoreCopy.test.ts",
  "test/postgres",

  // Store
  "docs/guarantees.md",
  "docs/http-api.md",
  "src/Kv",
  "src/Storage/Backup",
  "src/Storage/Backup.ts",
  "src/Storage/DirectoryLock.ts",
  "src/Storage/FileSystem.ts",
  "src/Storage/GroupCommit.ts",
  "src/Storage/GroupQueue.ts",
  "src/Storage/Housekeeping.ts",
  "src/Storage/IdempotencyMetrics.ts",
  "src/Storage/LastSeq.ts",
  "src/Storage/Memory",
  "src/Storage/Sqlite",
  "src/Storage/Sqlite.ts",
  "src/Storage/StoreCommit.ts",
  "test/Kv",
  "test/Storage/Backup",
  "test/Storage/Backup.test.ts",
  "test/Storage/GroupCommit.test.ts",
  "test/Storage/GroupCommitObserve.test.ts",
  "test/Storage/Migrations.test.ts",
  "test/Storage/Numbers.ts",
  "test/Storage/Sqlite",
  "test/history",
  "test/suites",

  // Gateway and upstream
  "docs/gateway.md",
  "docs/protocol.md",
  "src/Cluster",
  "src/Gateway",
  "src/Simulator",
  "src/Upstream",
  "test/Gateway",
  "test/Simulator",
  "test/Upstream",

  // Rest
  "scripts/pages.ts",
  "test/Cli.test.ts"
]
