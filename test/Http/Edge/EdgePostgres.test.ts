import { describe, it } from "vitest"
import { emptiedLayer } from "../../postgres/Databases.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import { httpStoreSuite, rowSuite } from "../../suites/HttpSuite.ts"
import { quickEdge } from "./EdgeTransport.ts"

if (reasonToSkip === undefined) {
  httpStoreSuite(quickEdge, "postgres", emptiedLayer())
  rowSuite(quickEdge, "postgres", emptiedLayer())
} else {
  describe.skip(`The edge over Postgres, ${reasonToSkip}`, () => {
    it("passes the suite of the HTTP interface", () => undefined)
  })
}
