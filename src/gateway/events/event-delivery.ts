import { messageOf } from '../../lib/errors.ts';
import { backoffDelay } from '../../lib/time/backoff.ts';
import { withSignal } from '../../lib/time/deadline.ts';
import type { DestinationTest } from '../../management/resources/event.ts';
import { isMessageTarget } from '../../management/resources/message-target.ts';
import type { publicAddress, publicRequest } from '../../traffic-policy/public-request.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import { type EventDestinationRow, type EventRow, MESSAGE_TYPE, type Target } from '../store/events.ts';
import { MAX_REFUSED } from '../store/refused-events.ts';
import { chatSink } from './chat-sink.ts';
import { fileSink } from './event-file.ts';
import { type EventSink, NotAccepted } from './event-sink.ts';
import { type Message, testMessage } from './message.ts';
import { syslogSink } from './syslog.ts';
import { webhookSink } from './webhook-sink.ts';

/** How often changes are looked for that commands have made. */
const LOOK_MS = 1_000;
/** More than there can be. */
const MAX_DESTINATIONS = 100;

type DeliveryContext = Pick<GatewayContext, 'store' | 'clock' | 'log'>;

/** Sends events to their destinations, while it is started. None waits for another one. */
export class EventDelivery {
  readonly #workers = new Map<string, { worker: DestinationWorker; target: Buffer }>();
  readonly #stopping = new Set<Promise<void>>();
  /** The last event that each destination has acknowledged, if that is not recorded yet: it may not be sent again. */
  readonly #acknowledged = new Map<string, string>();
  #isStarted = false;
  #latest: string | null = null;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly context: DeliveryContext,
    private readonly own: {
      folder: string;
      request: typeof publicRequest;
      resolve: typeof publicAddress;
      /** Whether no other gateway may have begun to send. */
      isSender: () => boolean;
    },
  ) {
    context.store.database.onCommit(() => this.#look());
  }

  /** What destinations have acknowledged, by their ids, and is not recorded yet. */
  get acknowledged(): Readonly<Record<string, string>> {
    return Object.fromEntries(this.#acknowledged);
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
    const latest = this.context.store.auditLog.latestId();
    if (latest === this.#latest) return;
    this.#latest = latest;
    const rows = new Map(this.context.store.eventDestinations.page(null, MAX_DESTINATIONS).map((row) => [row.id, row]));
    for (const [id, { target }] of this.#workers) {
      // A new target is tried at once.
      if (!rows.get(id)?.target.equals(target)) this.#stop(id);
      if (!rows.has(id)) this.#acknowledged.delete(id);
    }
    for (const row of rows.values()) {
      const known = this.#workers.get(row.id);
      if (known) known.worker.wake();
      else this.#workers.set(row.id, { worker: this.#begin(row), target: row.target });
    }
    this.#watch();
  }

  #begin(destination: EventDestinationRow): DestinationWorker {
    const { store } = this.context;
    const target = store.eventDestinations.target(destination);
    const [sink, acknowledged] = [target && this.#sinkOf(target), this.#acknowledged];
    const { isSender } = this.own;
    return new DestinationWorker(this.context, { destination, sink, acknowledged, isSender });
  }

  /**
   * Sends a test message now, beside the events that wait.
   * @param gateway its name, which the message says
   */
  async test(destination: EventDestinationRow, gateway: string): Promise<DestinationTest> {
    const { store, clock } = this.context;
    const target = store.eventDestinations.target(destination);
    if (target === null) return { accepted: false, answer: UNREADABLE };
    // Its lines are in the order of their ids, which a test has none of.
    if (target.kind === 'file') return { accepted: true, answer: `events are written to ${destination.address}` };
    const sink = this.#sinkOf(target);
    const [id, message] = [store.ids.next('test'), testMessage(gateway)];
    const event = { ...messageEvent(message), id, created_at: store.now() };
    const limit = sink.timeoutMs ?? TIMEOUT_MS;
    try {
      const answer = await withSignal((signal) => sink.send([event], signal), 'the delivery', limit, undefined, clock);
      return { accepted: true, answer };
    } catch (error) {
      return { accepted: false, answer: messageOf(error) };
    }
  }

  #sinkOf(target: Target): EventSink {
    const { folder, request, resolve } = this.own;
    if (target.kind === 'webhook') return webhookSink(target, request);
    if (target.kind === 'email') return lazyEmailSink(target, resolve);
    if (isMessageTarget(target)) return chatSink(target, request);
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

/** Loads the client of SMTP when there is something to send: few gateways need it. */
function lazyEmailSink(target: Extract<Target, { kind: 'email' }>, resolve: typeof publicAddress): EventSink {
  return {
    batch: 1,
    timeoutMs: EMAIL_TIMEOUT_MS,
    send: async (events, signal) => {
      const { emailSink } = await import('./email-sink.ts');
      return emailSink(target, resolve).send(events, signal);
    },
  };
}

/** A message as an event that is not stored. */
function messageEvent(message: Message): Omit<EventRow, 'id' | 'created_at'> {
  return { type: MESSAGE_TYPE, before: null, after: { ...message }, by: null, from_address: null };
}

const UNREADABLE = 'its target cannot be decrypted: restore the encryption key, or set a new target';
/** Servers that mistrust a client greet it late, on purpose. */
const EMAIL_TIMEOUT_MS = 60_000;
const RETRY = { baseMs: 1_000, maxMs: 60_000 };
/** For an attempt. */
const TIMEOUT_MS = 10_000;
/** For what is being sent when a worker stops: cut off at once, it may have arrived, and would be sent again. */
const FINISH_MS = 1_000;
/** Failures in a row that are reported: a restart of the receiver is none of the operator's business. */
const REPORTED = 3;
/** How often an event is sent that its destination refuses, before those after it have their turn. */
const TRIES = 5;
/** The longest `Retry-After` that is honoured. */
const MAX_RETRY_AFTER_MS = 3_600_000;

/** Sends the events of one destination, one batch after another, until each is acknowledged. */
class DestinationWorker {
  readonly #abort = new AbortController();
  /** Ends what is being sent. */
  readonly #cut = new AbortController();
  readonly #done: Promise<void>;
  #wake: () => void = () => {};
  #failures = 0;
  #isReported = false;
  /** The event that was refused last, and how often in a row. */
  #refused = { id: '', times: 0 };

  constructor(
    private readonly context: DeliveryContext,
    private readonly own: {
      destination: EventDestinationRow;
      /** Null: its target cannot be decrypted. */
      sink: EventSink | null;
      /** By destination, see {@link EventDelivery.acknowledged}. */
      acknowledged: Map<string, string>;
      isSender: () => boolean;
    },
  ) {
    this.#done = this.#run(this.#abort.signal);
  }

  wake(): void {
    this.#wake();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    this.#wake();
    const timer = setTimeout(() => this.#cut.abort(), FINISH_MS);
    await this.#done;
    clearTimeout(timer);
  }

  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      // Before the look, so that it misses none.
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      try {
        if (!(await this.#deliverNext(signal))) await woken;
      } catch (error) {
        if (signal.aborted) return;
        await this.#wait(error, signal);
      }
    }
  }

  async #wait(error: unknown, signal: AbortSignal): Promise<void> {
    const { clock } = this.context;
    const { isRefusal = false, retryAfterMs = null } = error instanceof NotAccepted ? error : {};
    const asked = Math.min(retryAfterMs ?? 0, MAX_RETRY_AFTER_MS);
    this.#failures += 1;
    // A refused event is reported when it is passed over.
    const isDue = this.#failures >= REPORTED || asked > RETRY.maxMs;
    if (isDue && !isRefusal && !this.#isReported) await this.#report(error);
    const delay = Math.max(
      asked,
      backoffDelay(this.#failures - 1, RETRY, () => clock.random()),
    );
    await clock.sleep(delay, signal).catch(() => {}); // aborted
  }

  /** @returns whether there was something to send */
  async #deliverNext(signal: AbortSignal): Promise<boolean> {
    const { store, clock, log } = this.context;
    const { destination, sink, acknowledged, isSender } = this.own;
    const { id, address } = destination;
    // The order to stop comes later than this is known, and not at all after a short pause.
    while (!isSender()) await clock.sleep(LOOK_MS, signal);
    const delivery = store.eventDeliveries.get(id);
    if (delivery === null) return false;
    if ((acknowledged.get(id) ?? '') <= delivery.delivered) {
      const again = store.eventDeliveries.toSendAgain(id);
      const events = again ? [again] : store.eventDeliveries.waiting(delivery, sink?.batch ?? 1);
      const last = events.at(-1);
      if (last === undefined) return false;
      if (sink === null) throw new Error(UNREADABLE);
      try {
        await withSignal(
          (limit) => sink.send(events, limit),
          ...(['the delivery', sink.timeoutMs ?? TIMEOUT_MS, this.#cut.signal, clock] as const),
        );
        if (again) await store.database.write(() => store.eventDeliveries.acknowledged(id, last.id));
        else acknowledged.set(id, last.id);
      } catch (error) {
        if (!(error instanceof NotAccepted && error.isRefusal)) throw error;
        await this.#passOver(last, error);
      }
    }
    const upTo = acknowledged.get(id);
    if (upTo !== undefined && upTo > delivery.delivered) {
      const recorded = await store.database.write(() => store.eventDeliveries.acknowledged(id, upTo));
      if (acknowledged.get(id) === upTo) acknowledged.set(id, recorded);
    }
    this.#failures = 0;
    this.#isReported = false;
    if (delivery.failing_since !== null)
      log.info({ destination: id, url: address }, 'event destination reachable again');
    return true;
  }

  /** @throws {NotAccepted} when another attempt may succeed */
  async #passOver(event: EventRow, refusal: NotAccepted): Promise<void> {
    const { store, log } = this.context;
    const { destination } = this.own;
    const { id, address } = destination;
    const { database, eventDeliveries, refusedEvents } = store;
    const { message: reason } = refusal;
    const before = this.#refused.id === event.id ? this.#refused.times : 0;
    this.#refused = { id: event.id, times: before + 1 };
    if (before + 1 < TRIES) throw refusal;
    if (refusedEvents.countOf(id) >= MAX_REFUSED && refusedEvents.of(id, event.id) === null)
      throw new Error(`${reason}, and ${MAX_REFUSED} refused events wait: send them again or let them go`);
    await database.write(() => eventDeliveries.refused(id, event, reason));
    this.#refused = { id: '', times: 0 };
    log.warn(
      { destination: id, url: address, event: event.id, reason },
      'event refused by its destination: passed over',
    );
  }

  async #report(error: unknown): Promise<void> {
    const { store, log } = this.context;
    const { destination } = this.own;
    const { id, address } = destination;
    const reason = messageOf(error);
    const { database, eventDeliveries } = store;
    this.#isReported = true;
    log.warn({ destination: id, url: address, reason }, 'event destination unreachable: its events wait');
    try {
      await database.write(() => eventDeliveries.failed(id, store.now(), reason));
    } catch (err) {
      log.warn({ err }, 'state of an event destination not recorded');
    }
  }
}
