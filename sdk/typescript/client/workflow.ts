/** Types that carry from a workflow's definition to those who start it. */

/**
 * A workflow as its module exports it: a function of one input. Only its type and name are used;
 * it is never called here.
 */
export interface Workflow<Input, Output> {
  (input: Input): Promise<Output>;
  /** Name under which it is deployed; left out: the function's own name. */
  readonly workflowType?: string;
}

type Code = (...args: never[]) => Promise<unknown>;

/**
 * A workflow by its exported function, by the name of its type, or by both: `{ trialReminder }`
 * says the export's name, which a function made of an arrow does not know.
 */
export type WorkflowRef = string | Code | { readonly [type: string]: Code };

type CodeOf<W> = W extends Code ? W : W extends { readonly [type: string]: infer Only } ? Only : never;

/** Input of a workflow given by its type; anything for one given by name. */
export type InputOf<W> = W extends string ? unknown : CodeOf<W> extends (...args: infer Args) => unknown ? Args[0] : unknown;
/** Result of a workflow given by its type; anything for one given by name. */
export type OutputOf<W> = W extends string ? unknown : CodeOf<W> extends (...args: never[]) => Promise<infer Output> ? Output : unknown;

/** Name of the workflow's type. Throws `TypeError` where the reference does not tell it. */
export function typeName(workflow: WorkflowRef): string {
  if (typeof workflow === "string") return workflow;
  if (typeof workflow === "object") {
    const names = Object.keys(workflow);
    if (names.length === 1) return names[0] as string;
    throw new TypeError(`Cannot start a workflow: want one, as in { trialReminder }, got ${names.length}`);
  }
  const name = (workflow as { workflowType?: string }).workflowType ?? workflow.name;
  if (name !== "") return name;
  throw new TypeError("Cannot start a workflow whose function has no name: pass it as { trialReminder }, or pass the name of its type");
}
