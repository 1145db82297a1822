import { type Signal, useSignal } from '@preact/signals';
import { ApiProblem } from './api.ts';
import { isComplete } from './field.tsx';

/** What a form or a button sends, one at a time. */
export interface Submission {
  readonly busy: boolean;
  /** Of the latest one. */
  readonly problem: ApiProblem | null;
  /** @returns the problem; null when it succeeded, or when another one was under way */
  run(work: () => Promise<unknown>): Promise<ApiProblem | null>;
  /** The `onSubmit` of a form, which does the work when all fields are valid. */
  onSubmit(work: () => Promise<unknown>): (event: Event) => void;
}

/**
 * Does something with the API, and keeps its problem; null when it succeeded. Errors other than {@link ApiProblem} go on to the
 * browser.
 *
 * @returns the problem
 */
export async function attempt(
  problem: Signal<ApiProblem | null>,
  work: () => Promise<unknown>,
): Promise<ApiProblem | null> {
  try {
    await work();
    problem.value = null;
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    problem.value = error;
  }
  return problem.value;
}

/** The state of what a component sends. */
export function useSubmission(): Submission {
  const busy = useSignal(false);
  const problem = useSignal<ApiProblem | null>(null);
  const run = async (work: () => Promise<unknown>): Promise<ApiProblem | null> => {
    if (busy.value) return null;
    busy.value = true;
    problem.value = null;
    try {
      return await attempt(problem, work);
    } finally {
      busy.value = false;
    }
  };
  const onSubmit = (work: () => Promise<unknown>) => (event: Event) => {
    event.preventDefault();
    if (isComplete(event.currentTarget)) void run(work);
  };
  return { busy: busy.value, problem: problem.value, run, onSubmit };
}
