import { ClientShares } from '../../lib/network/client-shares.ts';
import { SortedKeys } from '../../lib/sorted-keys.ts';

/** What never changes of a session. */
interface SessionKeys {
  readonly id: string;
  readonly credential: { readonly id: string };
  readonly agent: { readonly instance: string | null; readonly connectionNumber: number };
}

const sameKey = (key: string): string => key;

/** Sessions, the oldest first. Nothing that one of them needs looks at all of them. */
export class SessionSet<S extends SessionKeys> implements Iterable<S> {
  readonly #all = new Set<S>();
  readonly #byId = new ClientShares<S>(sameKey);
  readonly #byCredential = new ClientShares<S>(sameKey);
  readonly #idsInOrder = new SortedKeys();
  readonly #withBudget = new Set<S>();
  /** How many ids there are: connections of one agent share one. */
  #ids = 0;
  /** By the process of their agent, if its metadata names one. */
  readonly #byInstance = new ClientShares<S>(sameKey);

  get size(): number {
    return this.#all.size;
  }

  get ids(): number {
    return this.#ids;
  }

  [Symbol.iterator](): Iterator<S> {
    return this.#all.values();
  }

  add(session: S): void {
    const { id, credential, agent } = session;
    this.#all.add(session);
    if (this.#byId.add(id, session).size === 1) {
      this.#idsInOrder.add(id);
      this.#ids += 1;
    }
    this.#byCredential.add(credential.id, session);
    if (agent.instance !== null) this.#byInstance.add(agent.instance, session);
  }

  /** @returns whether it was there */
  delete(session: S): boolean {
    const { id, credential, agent } = session;
    if (!this.#all.delete(session)) return false;
    this.#withBudget.delete(session);
    this.#byId.delete(id, session);
    if (this.#byId.of(id).size === 0) {
      this.#idsInOrder.delete(id);
      this.#ids -= 1;
    }
    this.#byCredential.delete(credential.id, session);
    if (agent.instance !== null) this.#byInstance.delete(agent.instance, session);
    return true;
  }

  /** Those with an id: the connections of one agent, and of others that have sent the same id. */
  withId(id: string): ReadonlySet<S> {
    return this.#byId.of(id);
  }

  /** Those of devices that say something of a data budget, see {@link noteBudget}. */
  get withBudget(): ReadonlySet<S> {
    return this.#withBudget;
  }

  noteBudget(session: S): void {
    if (this.#all.has(session)) this.#withBudget.add(session);
  }

  /** The newest with each id below one, the last id first; null: all. */
  *below(id: string | null): Generator<S> {
    for (const each of this.#idsInOrder.below(id)) yield [...this.withId(each)].at(-1) as S;
  }

  ofCredential(credentialId: string): ReadonlySet<S> {
    return this.#byCredential.of(credentialId);
  }

  /** The sessions that an agent has had before this one, on the same of its connections. */
  replacedBy({ id, credential, agent }: S): S[] {
    const { instance, connectionNumber } = agent;
    const candidates = new Set([...this.withId(id), ...(instance === null ? [] : this.#byInstance.of(instance))]);
    return [...candidates].filter(
      (older) => older.credential.id === credential.id && older.agent.connectionNumber === connectionNumber,
    );
  }

  /** Whose session ends for a new one, see {@link ClientShares.excessFor}; null: nobody has more than the credential. */
  newestOfLargestShare(credentialId: string): S | null {
    return [...this.#byCredential.excessFor(credentialId)].at(-1) ?? null;
  }
}
