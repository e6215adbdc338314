/** What a workflow may know about itself. */
import { engine } from "./engine.ts";

export interface WorkflowInfo {
  /** `namespace:instance`. */
  readonly run: string;
  readonly namespace: string;
  readonly instance: string;
  /** Number of this run among those of its instance, from 1. */
  readonly generation: number;
  /** Name of the exported workflow. */
  readonly type: string;
  /** Hex SHA-256 of the code. */
  readonly bundle: string;
  /** Logical time of the start, in milliseconds since 1970. */
  readonly startedMs: number;
}

export function workflowInfo(): WorkflowInfo {
  return engine("workflowInfo()").info();
}
