import * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { Option, SchemaAST } from "effect"

const isClosed = (ast: SchemaAST.AST): boolean =>
  Option.exists(SchemaAST.getParseOptionsAnnotation(ast), ({ onExcessProperty }) => onExcessProperty === "error")

const partsOf = (ast: SchemaAST.AST): ReadonlyArray<SchemaAST.AST> => {
  switch (ast._tag) {
    case "TypeLiteral":
      return ast.propertySignatures.map(({ type }) => type)
    case "TupleType":
      return [...ast.elements, ...ast.rest].map(({ type }) => type)
    case "Union":
      return ast.types
    case "Refinement":
    case "Transformation":
      return [ast.from]
    default:
      return []
  }
}

/**
 * The identifiers of objects in request bodies that refuse unknown members. The platform's document says so of every
 * object, also of those that ignore unknown members.
 */
export const closedSchemas = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
): ReadonlySet<string> => {
  const closed = new Set<string>()
  const visit = (ast: SchemaAST.AST): void => {
    if (isClosed(ast)) Option.map(SchemaAST.getIdentifierAnnotation(ast), name => closed.add(name))
    partsOf(ast).forEach(visit)
  }
  HttpApi.reflect(api, {
    onGroup: () => undefined,
    onEndpoint: ({ endpoint }) => {
      Option.map(endpoint.payloadSchema, ({ ast }) => visit(ast))
    }
  })
  return closed
}
