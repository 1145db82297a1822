import type { Log } from '../../lib/log/log.ts';
import type { Clock } from '../../lib/time/clock.ts';
import type { publicAddress, publicRequest } from '../../traffic-policy/public-request.ts';
import type { EventDestinationRow, Target } from '../store/events.ts';
import type { Store } from '../store/store.ts';
import { DestinationWorker } from './destination-worker.ts';
import { fileSink } from './event-file.ts';
import type { EventSink } from './event-json.ts';
import { syslogSink } from './syslog.ts';
import { webhookSink } from './webhook-sink.ts';

/** How often changes are looked for that commands have made. */
const LOOK_MS = 1_000;
/** More than there can be. */
const MAX_DESTINATIONS = 100;

interface EventDeliveryOptions {
  store: Store;
  /** Has the files of destinations. */
  folder: string;
  request: typeof publicRequest;
  resolve: typeof publicAddress;
  clock: Clock;
  log: Log;
}

/** Sends events to their destinations, while it is started. None waits for another one. */
export class EventDelivery {
  readonly #workers = new Map<string, { worker: DestinationWorker; target: Buffer }>();
  readonly #stopping = new Set<Promise<void>>();
  #isStarted = false;
  /** The newest change that was looked at. */
  #latest: string | null = null;
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly options: EventDeliveryOptions) {
    options.store.database.onCommit(() => this.#look());
  }

  start(): void {
    this.#isStarted = true;
    this.#latest = null;
    this.#look();
  }

  /** Resolves when nothing is sent any more. */
  async stop(): Promise<void> {
    this.#isStarted = false;
    for (const id of this.#workers.keys()) this.#stop(id);
    this.#watch();
    await Promise.all(this.#stopping);
  }

  #look(): void {
    if (!this.#isStarted) return;
    // Whatever concerns it is a change, too.
    const latest = this.options.store.auditLog.latestId();
    if (latest === this.#latest) return;
    this.#latest = latest;
    const rows = new Map(this.options.store.eventDestinations.page(null, MAX_DESTINATIONS).map((row) => [row.id, row]));
    for (const [id, { target }] of this.#workers) {
      // A new target is tried at once.
      if (!rows.get(id)?.target.equals(target)) this.#stop(id);
    }
    for (const row of rows.values()) {
      const known = this.#workers.get(row.id);
      if (known) known.worker.wake();
      else this.#workers.set(row.id, { worker: this.#begin(row), target: row.target });
    }
    this.#watch();
  }

  #begin(destination: EventDestinationRow): DestinationWorker {
    const { store, clock, log } = this.options;
    const target = store.eventDestinations.target(destination);
    return new DestinationWorker({ store, destination, sink: target && this.#sinkOf(target), clock, log });
  }

  #sinkOf(target: Target): EventSink {
    const { folder, request, resolve } = this.options;
    if (target.kind === 'webhook') return webhookSink(target, request);
    return target.kind === 'file' ? fileSink(target, folder) : syslogSink(target, resolve);
  }

  #stop(id: string): void {
    const known = this.#workers.get(id);
    if (!known) return;
    this.#workers.delete(id);
    const stopped = known.worker.stop().finally(() => this.#stopping.delete(stopped));
    this.#stopping.add(stopped);
  }

  #watch(): void {
    if (this.#workers.size > 0) this.#timer ??= setInterval(() => this.#look(), LOOK_MS).unref();
    else {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
  }
}
