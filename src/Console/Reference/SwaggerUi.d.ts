/** What is used of Swagger UI, whose package has no types. */
declare module "swagger-ui-dist/swagger-ui-es-bundle.js" {
  const SwaggerUI: (options: Readonly<Record<string, unknown>>) => {
    readonly preauthorizeApiKey: (scheme: string, key: string) => void
  }
  export default SwaggerUI
}

declare module "swagger-ui-dist/swagger-ui.css"
