/** From the moment that an agent asks for a name until it knows that it has it no more; milliseconds of one clock. */
export interface Tenure {
  readonly name: string;
  readonly credential: string;
  readonly askedAt: number;
  /** When it was told that it has the name. */
  boundAt: number;
  endedAt: number;
}

/** What agents were told and clients were served in a history, and what of it cannot be. */
export class ServingRecord {
  readonly #tenures = new Map<string, Tenure[]>();
  readonly #revoked = new Map<string, number>();
  readonly violations: string[] = [];
  answers = 0;
  /** Before, names may have been lost: the database was put back. Infinite until all agree again. */
  exactFrom = 0;

  asked(name: string, credential: string): Tenure {
    const never = Number.POSITIVE_INFINITY;
    const tenure = { name, credential, askedAt: performance.now(), boundAt: never, endedAt: never };
    this.#tenures.set(name, [...(this.#tenures.get(name) ?? []), tenure]);
    return tenure;
  }

  /** The authtoken is valid nowhere from now on. */
  revoked(credential: string): void {
    this.#revoked.set(credential, performance.now());
  }

  /** A client was served in a tenure. @param beganAt when the client asked */
  answered(tenure: Tenure, beganAt: number, node: string): void {
    this.answers += 1;
    const { name, credential } = tenure;
    const what = `${name}: ${credential} served a client of gateway ${node}`;
    const isLater = (other: Tenure) =>
      other.credential !== credential && other.askedAt > Math.max(tenure.boundAt, this.exactFrom);
    const later = this.#of(name).find((other) => isLater(other) && other.boundAt < beganAt);
    if (later) {
      const before = (at: number) => `${Math.round(beganAt - at)} ms`;
      const other = `asked ${before(later.boundAt)} after ${later.credential} had got the name`;
      const own = `had asked for it ${before(tenure.askedAt)}, got it ${before(tenure.boundAt)} before`;
      this.violations.push(`${what} that ${other}; it ${own}; exact for ${before(this.exactFrom)}`);
    }
    const revokedAt = this.#revoked.get(credential) ?? Number.POSITIVE_INFINITY;
    if (beganAt > revokedAt)
      this.violations.push(`${what} that asked ${Math.round(beganAt - revokedAt)} ms after its revocation`);
  }

  /** The tenures of a name that go on, as far as their agents know. */
  current(name: string): Tenure[] {
    return this.#of(name).filter(({ boundAt, endedAt }) => Number.isFinite(boundAt) && !Number.isFinite(endedAt));
  }

  #of(name: string): Tenure[] {
    return this.#tenures.get(name) ?? [];
  }
}
