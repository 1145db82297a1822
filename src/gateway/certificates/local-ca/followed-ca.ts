import { X509Certificate } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { join } from 'node:path';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import type { Store } from '../../store/store.ts';
import {
  caState,
  endCa,
  hasCome,
  knownCertificates,
  type NextCa,
  nextCa,
  nextCaKey,
  noteCertificates,
} from './ca-rotation.ts';
import type { Leaf } from './certificate-files.ts';
import { isCaDue } from './certificate-validity.ts';
import { type LocalCa, localCa } from './local-ca.ts';
import { openPresentCa } from './shared-ca.ts';

/** How often a gateway looks whether its CA was changed, by a command or another gateway. */
const LOOK_MS = 2_000;
/** For so long after a CA has ended, other gateways may still show it: they have not looked yet. */
const ENDED_MS = 300_000;

/**
 * The CAs of a gateway: the present one, and while it is being changed the next one. Clients that ask for none of them get
 * certificates of the present one.
 */
export class GatewayCa extends EventEmitter<{ changed: [] }> implements LocalCa {
  #present: LocalCa;
  #next: LocalCa | null = null;
  /** Everything that other gateways may still show to this one: by its PEM, until when. */
  readonly #seen = new Map<string, number>();
  #state = '';
  #looking: Promise<void> | null = null;
  #problem = '';

  private constructor(
    private readonly own: { folder: string; store: Store; log: Log; now: () => number },
    present: LocalCa,
  ) {
    super();
    this.#present = present;
    this.#take(present);
  }

  /** @throws {OperatorError} as `openPresentCa` */
  static async open(folder: string, store: Store, log: Log, now: () => number = Date.now): Promise<GatewayCa> {
    const ca = new GatewayCa({ folder, store, log, now }, await openPresentCa(folder, store, log));
    await ca.look();
    return ca;
  }

  get caFile(): string {
    return this.#present.caFile;
  }

  get caPem(): string {
    return this.#present.caPem;
  }

  get id(): string {
    return this.#present.id;
  }

  /** Null: the CA is not being changed. */
  get next(): LocalCa | null {
    return this.#next;
  }

  get all(): readonly LocalCa[] {
    return this.#next === null ? [this.#present] : [this.#present, this.#next];
  }

  /** PEM of all of them, and of the certificates that they had before they were renewed. */
  get bundle(): string {
    const present = this.all.map(({ caPem }) => caPem);
    return [...new Set([...present, ...knownCertificates(this.own.store.database)])].map(withNewline).join('');
  }

  /** PEM of the CAs that other gateways may show. */
  get trusted(): string {
    const now = this.own.now();
    return [...this.#seen].flatMap(([pem, until]) => (now < until ? [withNewline(pem)] : [])).join('');
  }

  issue(names: readonly string[]): Promise<Leaf> {
    return this.#present.issue(names);
  }

  certify(names: readonly string[], privateKeyPem: string): Promise<string> {
    return this.#present.certify(names, privateKeyPem);
  }

  /** The newest, if the client knows both. */
  among(ids: readonly string[]): LocalCa | null {
    return this.#next?.among(ids) ?? this.#present.among(ids);
  }

  /** Follows changes until the returned function is called. */
  watch(): () => void {
    const timer = setInterval(() => void this.look(), LOOK_MS).unref();
    return () => clearInterval(timer);
  }

  /** Takes what has changed. Never rejects. */
  look(): Promise<void> {
    this.#looking ??= this.#look()
      .catch((error: unknown) => {
        const reason = messageOf(error);
        if (reason !== this.#problem)
          this.own.log.error({ reason }, 'change of the certificate authority not followed');
        this.#problem = reason;
      })
      .finally(() => {
        this.#looking = null;
      });
    return this.#looking;
  }

  async #look(): Promise<void> {
    const { folder, store, log, now } = this.own;
    const { database } = store;
    if (hasCome(nextCa(database)?.endsAt ?? null, now()) && database.unwritable === null)
      await endCa(store, this.#present, now());
    const state = caState(database);
    const isDue = isCaDue(new X509Certificate(this.#present.caPem), now());
    if (state === this.#state && !isDue) return;
    const before = this.all.map(({ caPem }) => caPem).join();
    this.#take(await openPresentCa(folder, store, log));
    const plan = nextCa(database);
    if (plan === null) this.#next = null;
    else if (plan.id !== this.#next?.id) this.#next = this.#openNext(plan);
    if (this.#next) await this.#note(this.#next);
    this.#state = state;
    this.#problem = '';
    if (this.all.map(({ caPem }) => caPem).join() === before) return;
    log.info(
      { ca_id: this.id, next_ca_id: this.#next?.id ?? null, ends_at: plan?.endsAt ?? null },
      'certificate authorities changed',
    );
    this.emit('changed');
  }

  #openNext({ caPem, id }: NextCa): LocalCa {
    const { folder, store, log, now } = this.own;
    const files = { caPem, keyPem: nextCaKey(store), caFile: this.caFile, leaves: join(folder, `leaves-${id}`) };
    return localCa(files, log, now);
  }

  async #note(next: LocalCa): Promise<void> {
    this.#seen.set(next.caPem, Number.POSITIVE_INFINITY);
    await noteCertificates(this.own.store, [this.caPem, next.caPem]).catch(() => {}); // The next start tries again.
  }

  #take(present: LocalCa): void {
    // Those of a renewed CA have the same key.
    const isOver = present.id !== this.#present.id;
    this.#present = present;
    const end = this.own.now() + ENDED_MS;
    if (isOver) for (const [pem, until] of this.#seen) this.#seen.set(pem, Math.min(until, end));
    this.#seen.set(present.caPem, Number.POSITIVE_INFINITY);
  }
}

function withNewline(pem: string): string {
  return pem.endsWith('\n') ? pem : `${pem}\n`;
}
