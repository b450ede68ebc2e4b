import { describe, it } from "vitest"
import { emptiedLayer } from "../../postgres/Databases.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import { essential, httpSuite, rowSuite } from "../../suites/HttpSuite.ts"
import { quickEdge } from "./EdgeTransport.ts"

if (reasonToSkip === undefined) {
  httpSuite(quickEdge, "postgres", emptiedLayer(), essential)
  rowSuite(quickEdge, "postgres", emptiedLayer())
} else {
  describe.skip(`The edge over Postgres, ${reasonToSkip}`, () => {
    it("passes the suite of the HTTP interface", () => undefined)
  })
}
