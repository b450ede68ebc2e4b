/** The HTTP contract of the service. */
import * as HttpApi from "@effect/platform/HttpApi"
import * as OpenApi from "@effect/platform/OpenApi"
import { AgUiGroup } from "../Gateway/AgUi/Api.ts"
import { ChatGroup } from "../Gateway/AiSdk/Api.ts"
import { SessionsGroup } from "../Gateway/HttpSessions/Api.ts"
import { DescriptionGroup } from "../Http/OpenApi/Api.ts"
import { withoutPlatformError } from "../Http/OpenApi/Describe.ts"
import { KvGroup } from "../Kv/Api.ts"
import { ActivityGroup } from "../Operations/Activity/Api.ts"
import { ClusterGroup } from "../Operations/Cluster/Api.ts"
import { HealthGroup } from "../Operations/Health/Api.ts"
import { MetricsGroup } from "../Operations/Metrics/Api.ts"

export const StoreApi = HttpApi.make("causeway")
  .add(KvGroup)
  .add(ClusterGroup)
  .add(HealthGroup)
  .add(MetricsGroup)
  .add(DescriptionGroup)
  .annotate(OpenApi.Title, "Causeway")
  .annotate(OpenApi.License, { name: "MIT", url: "https://opensource.org/license/mit" })
  .annotate(OpenApi.Transform, withoutPlatformError)
  .annotate(
    OpenApi.Description,
    "A versioned key-value store with atomic batches and a change feed that never skips. Every error response is JSON with the single field `error`. An unknown path is 404. A method that a path does not support is 405 with `Allow`. HEAD is supported wherever GET is."
  )

/** The HTTP API of the service. */
export const Api = StoreApi.add(SessionsGroup).add(AgUiGroup).add(ChatGroup).add(ActivityGroup)
