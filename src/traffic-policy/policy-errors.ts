export interface PolicyProblem {
  /** `ERR_NGROK_…` of ngrok's catalogue. */
  readonly code: string;
  /** Phase, rule, action and field, if known: `on_http_request[0].actions[1].config.headers`. */
  readonly place: string;
  readonly message: string;
}

export class PolicyRefused extends Error {
  readonly problems: readonly PolicyProblem[];

  /** @param problems at least one; the first one's code stands for all */
  constructor(problems: readonly PolicyProblem[]) {
    super(problems.map(({ place, message }) => (place === '' ? message : `${place}: ${message}`)).join('\n'));
    this.name = 'PolicyRefused';
    this.problems = problems;
  }

  get code(): string {
    return this.problems[0]?.code ?? 'ERR_NGROK_2236';
  }
}

/** Makes a refusal with a single problem; callers add the outer parts of its place. */
export function refusal(code: string, message: string, place = ''): PolicyRefused {
  return new PolicyRefused([{ code, place, message }]);
}

export function atPlace<T>(place: string, prepare: () => T): T {
  try {
    return prepare();
  } catch (error) {
    if (!(error instanceof PolicyRefused)) throw error;
    throw new PolicyRefused(error.problems.map((problem) => ({ ...problem, place: joinPlace(place, problem.place) })));
  }
}

/** Collects the problems of a policy, so that its author sees all at once. */
export class ProblemList {
  readonly problems: PolicyProblem[] = [];

  /** @returns undefined after a refusal, which is collected */
  within<T>(place: string, prepare: () => T): T | undefined {
    try {
      return atPlace(place, prepare);
    } catch (error) {
      if (!(error instanceof PolicyRefused)) throw error;
      this.problems.push(...error.problems);
      return undefined;
    }
  }

  throwIfAny(): void {
    if (this.problems.length > 0) throw new PolicyRefused(this.problems);
  }
}

function joinPlace(outer: string, inner: string): string {
  if (outer === '' || inner === '') return outer + inner;
  return inner.startsWith('[') ? `${outer}${inner}` : `${outer}.${inner}`;
}

/** Raised while a policy runs: the client gets 500 with the code, a connection is closed. */
export class PolicyFailure extends Error {
  /** @param message for the gateway's log only: it may quote the policy */
  constructor(
    readonly code: string,
    message: string,
    options: ErrorOptions = {},
  ) {
    super(message, options);
    this.name = 'PolicyFailure';
  }
}

/** Ends what policies do for a client that has left. */
export class ClientLeft extends Error {
  constructor() {
    super('the client has left');
    this.name = 'ClientLeft';
  }
}
