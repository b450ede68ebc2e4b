import * as HttpApi from "@effect/platform/HttpApi"
import * as OpenApi from "@effect/platform/OpenApi"
import { ClusterGroup } from "./Cluster/Api.ts"
import { HealthGroup } from "./Health/Api.ts"
import { KvGroup } from "./Kv/Api.ts"
import { MetricsGroup } from "./Observability/Api.ts"
import { DescriptionGroup } from "./OpenApi/Api.ts"

/** The whole HTTP surface of the service. */
export const Api = HttpApi.make("causeway")
  .add(KvGroup)
  .add(ClusterGroup)
  .add(HealthGroup)
  .add(MetricsGroup)
  .add(DescriptionGroup)
  .annotate(OpenApi.Title, "Causeway")
