export const statements: ReadonlyArray<string> = [
  // Where a node takes requests of other nodes.
  "ALTER TABLE causeway.nodes ADD COLUMN address text"
]
