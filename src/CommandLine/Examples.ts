/** The examples in the help of each command, by its path. */
export const examples: Readonly<Record<string, ReadonlyArray<string>>> = {
  serve: ["PORT=9000 DATA_DIR=/var/lib/causeway causeway serve"],
  dev: ["causeway dev", "PORT=9000 causeway dev"],
  "kv get": ["causeway kv get tenant:demo/notes hello", "causeway kv get tenant:demo/notes hello --value-only"],
  "kv set": [
    `causeway kv set tenant:demo/notes hello '{"text":"world"}'`,
    "causeway kv set tenant:demo/notes draft 'any text' --string --ttl '30 minutes'"
  ],
  "kv delete": [
    "causeway kv delete tenant:demo/notes hello --if-version 1",
    "causeway kv delete tenant:demo/notes --prefix draft- --yes"
  ],
  "kv list": ["causeway kv list tenant:demo/notes --prefix dr", "causeway kv list tenant:demo/notes --count"],
  "kv namespaces": ["causeway kv namespaces --prefix tenant:demo/"],
  "kv watch": ["causeway kv watch tenant:demo/notes", "causeway kv watch --from 0"],
  batch: [
    "causeway batch operations.json",
    `echo '[{"op":"set","namespace":"tenant:demo/notes","key":"a","value":1}]' | causeway batch`
  ],
  export: ["causeway export --output all.ndjson", "causeway export tenant:demo/notes | jq -r .key"],
  import: ["causeway import all.ndjson", "causeway import notes.ndjson --namespace tenant:demo/copy --existing skip"],
  backup: ["causeway backup backup-1", "causeway backup store.db --url http://127.0.0.1:8080"],
  restore: ["causeway restore backup-1"],
  "migrate-store": ["causeway migrate-store --from sqlite:data --to postgres://causeway@db.example.com/causeway"],
  health: ["causeway health", "causeway health --strict"],
  openapi: ["causeway openapi > openapi.json", "causeway openapi --asyncapi > asyncapi.json"],
  "sessions list": ["causeway sessions list --waiting"],
  "sessions show": ["causeway sessions show 8e03978e-40d5-43dd-bc93-6894a57f9324"],
  "sessions tail": ["causeway sessions tail 8e03978e-40d5-43dd-bc93-6894a57f9324 --once"],
  "sessions send": ["causeway sessions send 8e03978e-40d5-43dd-bc93-6894a57f9324 'What is new?' --wait"],
  chat: ["causeway chat", "echo hello | causeway chat --agent assistant"],
  connection: ["causeway connection"]
}
