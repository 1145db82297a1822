import type { CelInput } from '@bufbuild/cel';
import { Budget } from './budget.ts';

export interface EvaluationContext {
  /** The variables by their dotted names; undefined for a variable without a value. */
  readonly variables: Readonly<Record<string, CelInput | undefined>>;
  readonly budget: Budget;
  /** Uniform in [0, 1). */
  random(): number;
  secret(vault: string, name: string): string | null;
}

/** Begins the message of an evaluation that has read a secret that it cannot have. */
export const UNKNOWN_SECRET = 'unknown secret';

const NOWHERE: EvaluationContext = {
  variables: {},
  budget: new Budget(),
  random: () => 0,
  secret: () => null,
};

let current: EvaluationContext = NOWHERE;

/**
 * The context of the current evaluation: the library passes functions only their arguments. One global is enough, because
 * evaluation is synchronous.
 */
export function currentContext(): EvaluationContext {
  return current;
}

export function evaluateIn<T>(context: EvaluationContext, plan: (variables: Record<string, CelInput>) => T): T {
  const outer = current;
  current = context;
  try {
    // The library treats an undefined member as an unresolvable variable, although its type excludes undefined.
    return plan(context.variables as Record<string, CelInput>);
  } finally {
    current = outer;
  }
}
