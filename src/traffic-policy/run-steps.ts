import type { Subject } from './policy-subjects.ts';
import type { RecordedRule } from './rule-record.ts';
import type { ConnectOutcome, MaybePromise, PolicyForward, RequestOutcome, ResponseOutcome } from './steps.ts';

/** A step of a phase, with its place for reports of failures. */
export interface PlacedStep<S extends Subject, Response, Result> {
  readonly place: string;
  /** The action that the step runs; null for a rule with expressions, whose steps are within. */
  readonly action: { readonly rule: RecordedRule; readonly type: string } | null;
  readonly run: (subject: S, response: Response) => Result | undefined;
}

/** How outcomes of a phase are handled. */
export interface OutcomeKind<Result> {
  /**
   * Handles the outcome of a step.
   *
   * @param rest runs the steps after it
   * @param fail makes an outcome of an error
   */
  settle(result: Result, rest: () => Result | undefined, fail: (error: unknown) => Result): Result | undefined;
  /**
   * Tells the outcomes of a phase, and those that follow when a request cannot be forwarded.
   *
   * @returns the result to go on with
   */
  observe(result: Result, onOutcome: (outcome: Outcome) => void): Result;
}

type Outcome = ConnectOutcome | RequestOutcome | ResponseOutcome;

/**
 * Joins steps into one that runs them in order until one has an outcome.
 *
 * @param fail makes an outcome of a thrown error
 * @param around runs the steps after one that had to wait
 */
export function sequence<S extends Subject, Response, Result>(
  steps: readonly PlacedStep<S, Response, Result>[],
  kind: OutcomeKind<Result>,
  fail: (place: string, error: unknown) => Result,
  around: <T>(work: () => T) => T,
): (subject: S, response: Response) => Result | undefined {
  const runFrom = (from: number, subject: S, response: Response): Result | undefined => {
    for (let at = from; at < steps.length; at++) {
      const step = steps[at] as PlacedStep<S, Response, Result>;
      if (subject.record !== undefined && step.action !== null) subject.record.runs(step.action.rule, step.action.type);
      let result: Result | undefined;
      try {
        result = step.run(subject, response);
      } catch (error) {
        return fail(step.place, error);
      }
      if (result === undefined) continue;
      return kind.settle(
        result,
        () => around(() => runFrom(at + 1, subject, response)),
        (error) => fail(step.place, error),
      );
    }
    return undefined;
  };
  return (subject, response) => runFrom(0, subject, response);
}

export const CONNECT: OutcomeKind<ConnectOutcome> = {
  settle: (outcome, rest) =>
    outcome.kind === 'forward' ? continued(outcome, (resumed) => resumed ?? rest()) : outcome,
  observe: (outcome, onOutcome) => {
    onOutcome(outcome);
    if (outcome.kind !== 'forward') return outcome;
    return continued(outcome, (resumed) => resumed && CONNECT.observe(resumed, onOutcome));
  },
};

export const RESPONSE: OutcomeKind<ResponseOutcome> = {
  settle: (outcome) => outcome,
  observe: (outcome, onOutcome) => {
    onOutcome(outcome);
    return outcome;
  },
};

export type RequestResult = MaybePromise<RequestOutcome | undefined>;

export const REQUEST: OutcomeKind<RequestResult> = {
  settle(result, rest, fail) {
    const settleOne = (outcome: RequestOutcome | undefined): RequestResult => {
      if (outcome === undefined) return rest();
      return outcome.kind === 'forward' ? continued(outcome, (resumed) => settleAgain(resumed)) : outcome;
    };
    const settleAgain = (resumed: RequestResult): RequestResult =>
      resumed instanceof Promise ? resumed.then(settleOne, fail) : settleOne(resumed);
    return settleAgain(result);
  },
  observe(result, onOutcome) {
    const observeOne = (outcome: RequestOutcome | undefined): RequestOutcome | undefined => {
      if (outcome === undefined) return undefined;
      onOutcome(outcome);
      return outcome.kind === 'forward'
        ? continued(outcome, (resumed) => REQUEST.observe(resumed, onOutcome))
        : outcome;
    };
    return result instanceof Promise ? result.then(observeOne) : observeOne(result);
  },
};

function continued<Result>(outcome: PolicyForward<Result>, goOn: (resumed: Result) => Result): PolicyForward<Result> {
  const { resume } = outcome;
  return resume ? { ...outcome, resume: (failure) => goOn(resume(failure)) } : outcome;
}
