/** The namespaces of the gateway's own records. */
import { assert, it } from "vitest"
import { isOfGateway, ofGateway } from "../../../src/Gateway/Protocol/Namespaces.ts"

it("namespaces are the gateway's if they are those of its records, and no others", () => {
  assert.isTrue(isOfGateway(ofGateway("acme", "sessions")))
  assert.isTrue(isOfGateway(ofGateway("acme", "threads")))
  for (const other of [
    "tenant:acme",
    "tenant:acme/threads/x",
    "x/tenant:acme/threads",
    "tenant/threads",
    "threads",
    ""
  ]) {
    assert.isFalse(isOfGateway(other), other)
  }
})
