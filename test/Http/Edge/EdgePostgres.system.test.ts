import { describe, it } from "vitest"
import { emptiedLayer } from "../../postgres/Databases.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import { httpSuite, ofStore } from "../../suites/HttpSuite.ts"
import { quickEdge } from "./EdgeTransport.ts"

if (reasonToSkip === undefined) {
  httpSuite(quickEdge, "postgres", emptiedLayer(), ofStore)
} else {
  describe.skip(`The edge over Postgres, ${reasonToSkip}`, () => {
    it("passes the suite of the HTTP interface", () => undefined)
  })
}
