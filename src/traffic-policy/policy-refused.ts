/** One thing that is wrong with a policy, and where. */
export interface PolicyProblem {
  /** `ERR_NGROK_…` of the documentation's catalogue. */
  readonly code: string;
  /** Phase, rule, action and field, as far as they are known: `on_http_request[0].actions[1].config.headers`. */
  readonly place: string;
  readonly message: string;
}

/** Raised for a policy that this gateway cannot run as it stands; the endpoint is then not bound. */
export class PolicyRefused extends Error {
  readonly problems: readonly PolicyProblem[];

  /** @param problems what is wrong, at least one; the first one's code stands for all */
  constructor(problems: readonly PolicyProblem[]) {
    super(problems.map(({ place, message }) => (place === '' ? message : `${place}: ${message}`)).join('\n'));
    this.name = 'PolicyRefused';
    this.problems = problems;
  }

  get code(): string {
    return this.problems[0]?.code ?? 'ERR_NGROK_2236';
  }
}

/** A refusal for a single reason; the place is added by whoever knows it. */
export function refusal(code: string, message: string, place = ''): PolicyRefused {
  return new PolicyRefused([{ code, place, message }]);
}

/** Runs part of a policy's preparation and adds to its refusal where in the policy that was. */
export function atPlace<T>(place: string, prepare: () => T): T {
  try {
    return prepare();
  } catch (error) {
    if (!(error instanceof PolicyRefused)) throw error;
    throw new PolicyRefused(error.problems.map((problem) => ({ ...problem, place: joinPlace(place, problem.place) })));
  }
}

/** Collects what is wrong with a policy, so that its author learns of everything at once. */
export class ProblemList {
  readonly problems: PolicyProblem[] = [];

  /**
   * Runs part of a policy's preparation, and keeps its refusal together with where in the policy that was.
   *
   * @returns what `prepare` returns; undefined when it refused
   */
  within<T>(place: string, prepare: () => T): T | undefined {
    try {
      return atPlace(place, prepare);
    } catch (error) {
      if (!(error instanceof PolicyRefused)) throw error;
      this.problems.push(...error.problems);
      return undefined;
    }
  }

  /** @throws {PolicyRefused} when anything was wrong */
  throwIfAny(): void {
    if (this.problems.length > 0) throw new PolicyRefused(this.problems);
  }
}

function joinPlace(outer: string, inner: string): string {
  if (outer === '' || inner === '') return outer + inner;
  return inner.startsWith('[') ? `${outer}${inner}` : `${outer}.${inner}`;
}
