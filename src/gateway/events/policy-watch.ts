import { createHmac } from 'node:crypto';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { messageOf } from '../../lib/errors.ts';
import { FairQueue } from '../../lib/fair-queue.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { type BucketRate, TokenBuckets } from '../../lib/time/token-bucket.ts';
import type { PolicyHolder } from '../endpoints/endpoint-policies.ts';
import { type BoundPolicyRow, hasPolicy } from '../store/bound-policies.ts';
import type { Store } from '../store/store.ts';

const DAY_MS = 86_400_000;
const DIGEST_PURPOSE = 'policies of agents';
const WRITE_MS = 1_000;
/** How long a digest is known, in milliseconds: an agent binds many endpoints with one policy, as do all agents of a fleet. */
const DIGEST_MS = 100;
/** Policies in memory, and those in one write. */
const MAX_WAITING = 10_000;
const BATCH = 200;
/** Changes of an authtoken that are recorded: those of a fleet at once, then a hundred a day. */
const CHANGES: BucketRate = { burst: 500, perMs: 100 / DAY_MS };
/** New endpoints of an authtoken whose policies are kept, as many as new names. */
const FIRST: BucketRate = { burst: 10_000, perMs: 1_000 / DAY_MS };

interface BoundPolicy extends PolicyHolder {
  readonly digest: string;
  readonly at: string;
}

/**
 * Records in the audit log when an endpoint of an agent gets another policy than it had last, also while the gateway was off.
 * Agents never wait for it. What an authtoken changes beyond its limit is recorded later, as one change, when it binds again.
 */
export class PolicyWatch {
  readonly #queue = new FairQueue<BoundPolicy>(MAX_WAITING);
  /** Those that wait, by URL. */
  readonly #waiting = new BoundedMap<string, BoundPolicy>(MAX_WAITING);
  readonly #changes = new TokenBuckets(CHANGES);
  readonly #first = new TokenBuckets(FIRST);
  readonly #failures = new Repeats();
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;
  #latest = { source: '', digest: '', until: 0 };

  constructor(
    private readonly store: Pick<Store, 'database' | 'boundPolicies' | 'box' | 'now'>,
    private readonly log: Log,
  ) {}

  /** @param source all that decides how the endpoint treats clients */
  note(holder: PolicyHolder, source: string): void {
    const { url, pooled, credentialId } = holder;
    const digest = this.#digestOf(source);
    const known = this.#lastOf(url);
    if (known !== null && hasPolicy(known, digest, pooled)) return;
    const now = performance.now();
    if (!(known === null ? this.#first : this.#changes).of(credentialId, now).tryTake(now)) {
      this.#report(credentialId, 'the authtoken has changed too many policies');
      return;
    }
    this.#add({ ...holder, digest, at: this.store.now() });
    this.#writeSoon();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    for (let left = Number.POSITIVE_INFINITY; this.#queue.size > 0 && this.#queue.size < left; ) {
      left = this.#queue.size;
      await this.#write();
    }
  }

  #digestOf(source: string): string {
    const now = performance.now();
    if (source === this.#latest.source && now < this.#latest.until) return this.#latest.digest;
    const key = this.store.box.keyFor(DIGEST_PURPOSE);
    const digest = `hmac-sha256:${createHmac('sha256', key).update(source).digest('hex').slice(0, 16)}`;
    this.#latest = { source, digest, until: now + DIGEST_MS };
    return digest;
  }

  #lastOf(url: string): Pick<BoundPolicyRow, 'policy_digest' | 'earlier_digests'> | null {
    const stored = this.store.boundPolicies.get(url);
    const waiting = this.#waiting.get(url);
    if (waiting === undefined) return stored;
    const earlier = stored === null ? [] : [stored.policy_digest, ...stored.earlier_digests];
    return { policy_digest: waiting.digest, earlier_digests: earlier };
  }

  #add(policy: BoundPolicy): void {
    this.#waiting.set(policy.url, policy);
    const lost = this.#queue.add(policy.credentialId, policy);
    if (lost === null) return;
    if (this.#waiting.get(lost.url) === lost) this.#waiting.delete(lost.url);
    this.#report(lost.credentialId, 'too many policies are waiting to be written');
  }

  #writeSoon(): void {
    if (this.#stopped) return;
    this.#timer ??= setTimeout(async () => {
      await this.#write();
      this.#timer = undefined;
      if (this.#queue.size > 0) this.#writeSoon();
    }, WRITE_MS).unref();
  }

  async #write(): Promise<void> {
    const batch: BoundPolicy[] = [];
    for (let next = this.#queue.take(); next; next = batch.length < BATCH ? this.#queue.take() : undefined)
      batch.push(next);
    await Promise.all(batch.map((policy) => this.#put(policy)));
  }

  async #put(policy: BoundPolicy): Promise<void> {
    const { database, boundPolicies } = this.store;
    const { url: id, credentialId, digest, access, at, pooled, address } = policy;
    const row = { id, created_at: at, credential_id: credentialId, policy_digest: digest, access: [...access] };
    try {
      await database.write(() => boundPolicies.put(row, pooled), { by: credentialId, from: address });
      if (this.#waiting.get(id) === policy) this.#waiting.delete(id);
    } catch (error) {
      this.#report(credentialId, messageOf(error));
      // A later one of the endpoint waits as well: that one is recorded.
      if (this.#waiting.get(id) === policy) this.#add(policy);
    }
  }

  #report(credential: string, reason: string): void {
    const times = this.#failures.timesDue(reason);
    if (times !== null) this.log.warn({ reason, credential, times }, 'policies of agents not recorded');
  }
}
