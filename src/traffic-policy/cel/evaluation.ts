import type { CelInput } from '@bufbuild/cel';
import { Budget } from './budget.ts';

/** What an expression is evaluated against. */
export interface EvaluationContext {
  /** One member a variable, under its dotted name; undefined when the variable has no value. */
  readonly variables: Readonly<Record<string, CelInput | undefined>>;
  readonly budget: Budget;
  /** Uniform in [0, 1). */
  random(): number;
  /** @returns null when there is no such secret */
  secret(vault: string, name: string): string | null;
}

const NOWHERE: EvaluationContext = {
  variables: {},
  budget: new Budget(),
  random: () => 0,
  secret: () => null,
};

let current: EvaluationContext = NOWHERE;

/**
 * What the expression that is just being evaluated runs against: the library hands its functions only
 * their arguments. Evaluation is synchronous, so a single place to keep it is enough.
 */
export function currentContext(): EvaluationContext {
  return current;
}

/** Runs a plan against a context. */
export function evaluateIn<T>(context: EvaluationContext, plan: (variables: Record<string, CelInput>) => T): T {
  const outer = current;
  current = context;
  try {
    // The library reads an undefined member as a variable that cannot be resolved; its type does not say so.
    return plan(context.variables as Record<string, CelInput>);
  } finally {
    current = outer;
  }
}
