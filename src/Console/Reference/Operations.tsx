/** The operations of the OpenAPI document in Swagger UI. */
import { useEffect, useRef } from "preact/hooks"
import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js"
import "swagger-ui-dist/swagger-ui.css"
import { routes } from "../Service/Page.ts"

export interface OpenApiDocument {
  readonly paths: Readonly<Record<string, Readonly<Record<string, OpenApiOperation>>>>
  readonly components?: { readonly securitySchemes?: Readonly<Record<string, unknown>> }
}

interface OpenApiOperation {
  readonly responses: Readonly<Record<string, { readonly content?: Readonly<Record<string, unknown>> }>>
}

/** Whether the response of a request ends. Swagger UI would wait forever for a stream. */
const isAnswered = ({ responses }: OpenApiOperation): boolean =>
  !("101" in responses || Object.values(responses).some(({ content }) => "text/event-stream" in (content ?? {})))

/** Requests go to the origin of the page, with the prefix that a proxy may add. */
const withServer = (document: OpenApiDocument) => ({
  ...document,
  servers: [{ url: new URL(routes.root, location.href).href.replace(/\/$/, "") }]
})

const plugin = (document: OpenApiDocument) => () => ({
  statePlugins: {
    spec: {
      wrapSelectors: {
        allowTryItOutFor: () => (_: unknown, path: string, method: string) => {
          const operation = document.paths[path]?.[method]
          return operation !== undefined && isAnswered(operation)
        }
      }
    }
  }
})

type Props = { readonly document: OpenApiDocument; readonly credential: string }

const Operations = ({ credential, document }: Props) => {
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const ui = SwaggerUI({
      domNode: box.current!,
      spec: withServer(document),
      plugins: [plugin(document)],
      deepLinking: true,
      defaultModelsExpandDepth: 0,
      displayRequestDuration: true,
      docExpansion: "list",
      tryItOutEnabled: true,
      syntaxHighlight: { theme: "tomorrow-night" },
      // The validator is on another host.
      validatorUrl: null,
      onComplete: () => {
        for (const scheme of Object.keys(document.components?.securitySchemes ?? {})) {
          ui.preauthorizeApiKey(scheme, credential)
        }
      }
    })
  }, [document, credential])
  return <div ref={box} />
}

export default Operations
