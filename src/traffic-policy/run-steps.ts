import type { ConnectOutcome, MaybePromise, PolicyForward, RequestOutcome, ResponseOutcome } from './steps.ts';

/** One step of a phase and where it stands, for its failures to be told. */
export interface PlacedStep<Subject, Response, Result> {
  readonly place: string;
  readonly run: (subject: Subject, response: Response) => Result | undefined;
}

/** How the outcomes of a phase are dealt with. */
export interface OutcomeKind<Result> {
  /**
   * Settles what a step came to.
   *
   * @param rest runs the steps after it
   * @param fail makes an outcome of an error
   */
  settle(result: Result, rest: () => Result | undefined, fail: (error: unknown) => Result): Result | undefined;
}

/**
 * Joins steps to one that runs them in turn until one of them has an outcome.
 *
 * @param fail makes an outcome of what a step threw
 */
export function sequence<Subject, Response, Result>(
  steps: readonly PlacedStep<Subject, Response, Result>[],
  kind: OutcomeKind<Result>,
  fail: (place: string, error: unknown) => Result,
): (subject: Subject, response: Response) => Result | undefined {
  const runFrom = (from: number, subject: Subject, response: Response): Result | undefined => {
    for (let at = from; at < steps.length; at++) {
      const step = steps[at] as PlacedStep<Subject, Response, Result>;
      let result: Result | undefined;
      try {
        result = step.run(subject, response);
      } catch (error) {
        return fail(step.place, error);
      }
      if (result === undefined) continue;
      return kind.settle(
        result,
        () => runFrom(at + 1, subject, response),
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
};

export const RESPONSE: OutcomeKind<ResponseOutcome> = { settle: (outcome) => outcome };

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
};

/** The same, going on with the steps after it when it cannot be forwarded. */
function continued<Result>(outcome: PolicyForward<Result>, goOn: (resumed: Result) => Result): PolicyForward<Result> {
  const { resume } = outcome;
  return resume ? { ...outcome, resume: (failure) => goOn(resume(failure)) } : outcome;
}
