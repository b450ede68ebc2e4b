/** The commands and examples of the pages that no test runs as they stand, each with the reason. */
import type { Fence } from "./Page.ts"

interface Excuse {
  readonly page: string
  /** How the block begins. */
  readonly starts: string
  readonly reason: string
}

/** Every entry is for one block. */
export const excuses: ReadonlyArray<Excuse> = [
  {
    page: "README.md",
    starts: "npx --yes",
    reason: "It downloads the dependencies of the package; test/Package runs it unchanged."
  },
  {
    page: "README.md",
    starts: "npm install",
    reason: "It downloads; test/Package installs the package with the same peers, and starts it in an empty directory."
  },
  {
    page: "docs/use/ag-ui-agents.md",
    starts: "npx causewayd dev --agent",
    reason: "It downloads the package; test/app/Agents.test.ts starts the service with the same agent."
  },
  {
    page: "docs/operate/deployment.md",
    starts: "docker build",
    reason:
      "It needs an engine and downloads base images. test/Package/Image.system.test.ts builds and runs it where there is an engine; test/Docs/Packaging.test.ts checks the Dockerfile."
  },
  {
    page: "docs/operate/deployment.md",
    starts: "bun node_modules",
    reason: "test/Runtimes.system.test.ts starts the service on Bun and Deno, which it installs."
  },
  {
    page: "docs/embed/effect-4.md",
    starts: "npm install",
    reason: "It downloads; test/Package/EffectFour.system.test.ts installs the same packages."
  },
  {
    page: "docs/embed/embedding.md",
    starts: "npm pkg set",
    reason:
      "It downloads; test/Package installs the package with the same peers, and runs the examples of the page there."
  },
  {
    page: "docs/reference/guarantees.md",
    starts: "npm run test:system -- test/history",
    reason: "npm run test:system runs test/history; the others are its long forms."
  },
  {
    page: "docs/reference/guarantees.md",
    starts: "TEST_SCALE=20 npm run test:system -- test/NodeFailures",
    reason: "npm run test:system runs test/NodeFailures.system.test.ts; these are its long forms."
  },
  {
    page: "docs/reference/guarantees.md",
    starts: "TEST_SCALE=25 npm run test:system -- test/Gateway/agreement",
    reason: "npm run test:system runs test/Gateway/agreement; these are its long forms."
  },
  {
    page: "docs/reference/http-api.md",
    starts: "npx --yes openapi-typescript@7",
    reason: "It downloads; test/generators runs it with the document that the commands before it make."
  },
  {
    page: "docs/operate/observability.md",
    starts: "docker run",
    reason: "It downloads the image of a collector and needs an engine."
  },
  {
    page: "docs/reference/protocol.md",
    starts: "GET /ws",
    reason: "It is the head of a request, which every test of test/Gateway sends."
  },
  {
    page: "docs/reference/protocol.md",
    starts: "new WebSocket(",
    reason: "The host is an example. test/Gateway/Socket/Credentials.test.ts connects with these subprotocols."
  }
]

/** Whether a block is excused. */
export const isExcused = ({ code, page }: Pick<Fence, "page" | "code">): boolean =>
  excuses.some(excuse => excuse.page === page && code.startsWith(excuse.starts))
