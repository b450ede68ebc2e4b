export default {
  causeway: {
    input: "openapi.json",
    // Without `urlEncodeParameters` a `/` in a name would be one of the path.
    output: {
      target: "generated/orval.ts",
      client: "fetch",
      baseUrl: { runtime: "process.env.CAUSEWAY_URL" },
      urlEncodeParameters: true
    }
  }
}
