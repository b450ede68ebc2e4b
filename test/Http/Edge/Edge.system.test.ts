import * as Memory from "../../../src/Storage/Memory.ts"
import { httpSuite, ofStore, ofTransport, outageSuite } from "../../suites/HttpSuite.ts"
import { edge } from "./EdgeTransport.ts"

httpSuite(edge, "memory", Memory.layer, { ...ofTransport, ...ofStore })
outageSuite(edge)
