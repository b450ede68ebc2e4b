/**
 * What the commands use of other packages. The build bundles this file, so that a host installs none of them: @effect/cli
 * has peers of its own, and a host must not get a second Effect.
 */
export * as Args from "@effect/cli/Args"
export * as CliConfig from "@effect/cli/CliConfig"
export * as Command from "@effect/cli/Command"
export * as HelpDoc from "@effect/cli/HelpDoc"
export * as Options from "@effect/cli/Options"
export * as Usage from "@effect/cli/Usage"
export * as ValidationError from "@effect/cli/ValidationError"
export { default as stringWidth } from "string-width"
