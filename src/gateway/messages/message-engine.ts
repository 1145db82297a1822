import { messageOf } from '../../lib/errors.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { shortText } from '../../lib/short-text.ts';
import { printable } from '../../lib/terminal-text.ts';
import { type Condition, isOfOneGateway } from '../conditions/conditions.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { ConditionSubject, LiveView, ReportedCondition } from '../endpoints/live-view.ts';
import { NOBODY_ELSE } from '../endpoints/live-view.ts';
import type { Message } from '../events/message.ts';
import type { ConditionRow, WithheldFor } from '../store/condition-history.ts';
import { noteSeenConditions, seenConditions } from '../store/condition-history.ts';
import { lostCommits } from '../store/lost-commits.ts';
import { DatabaseAway } from '../store/sql/database-problems.ts';
import { type Row, timestamp } from '../store/store.ts';
import { type Drafted, type Due, draftsOf, MESSAGES_AN_HOUR, type Situation } from './message-drafts.ts';
import { MESSAGE_PATH, MessageLinks } from './message-links.ts';
import { isQuiet, whyNotConcerned } from './message-rules.ts';
import { by, fleetSizes, REMOVED } from './message-words.ts';

type MessageRule = Row<'messageRules'>;

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
/** More between two looks is time in which nobody looked. */
const MAX_STEP_MS = 30_000;
/** How often the time is stored for which a condition was seen, while a rule waits for it. */
const KEEP_MS = MINUTE_MS;
/** After a start, agents connect again, and nothing has been counted yet. */
const GRACE_MS = MINUTE_MS;
/** What lasts shorter is not even written down. */
const RECORD_MS = MINUTE_MS;
/** How long something has to be away before it counts as over. */
const CLEAR_MS = 2 * MINUTE_MS;
/** The same for what comes and goes. */
const STEADY_MS = 30 * MINUTE_MS;
/** As often within an hour, it comes and goes. */
const FLAPS = 3;
/** Things that have one cause are noticed one after another, as heartbeats are missed. */
const GATHER_MS = MINUTE_MS;
/** How far behind a promoted standby may be. */
const REMEMBERED_MS = HOUR_MS;
/** Rows that one transaction writes: other work waits meanwhile. */
const BATCH = 100;
const LINK_MS = 7 * 24 * HOUR_MS;
const MAX_TEXT = 500;

/** Something that is wrong now. */
interface Seen extends Pick<ConditionRow, 'condition' | 'subject' | 'name' | 'site' | 'labels' | 'network'> {
  readonly severity: string;
  readonly message: string;
  readonly remedy: string;
  readonly since: string | null;
}

/** How long something was seen, or was away, while this gateway was up and looked. */
interface Watched {
  seenMs: number;
  awayMs: number;
  /** When it was seen first, RFC 3339. */
  readonly since: string;
  /** When it was away first; null: it is there. */
  awaySince: string | null;
}

export interface MessageSources {
  /** What is wrong as this gateway sees it. */
  readonly conditions: () => Promise<readonly Condition[]>;
  readonly live: Pick<LiveView, 'gateways' | 'askElsewhere'>;
  /** The origin of the management API, where links lead. */
  readonly origin: string;
  /** Whether no other gateway may have begun to tell. */
  readonly isSender: () => boolean;
}

type Withholding = { readonly row: ConditionRow; readonly rule: MessageRule; readonly reason: WithheldFor };

/**
 * Tells people what is wrong, and when it is over, as the rules say. Of several gateways, the primary node does. What was told is
 * written with the message, in one transaction: after a kill, nothing is told twice, and nothing is left out. How long
 * something was seen is written down once a minute, until somebody is told: the next gateway counts on.
 */
export class MessageEngine {
  readonly #watched = new Map<string, Watched>();
  /** When a notification was due first, in milliseconds of the clock. */
  readonly #dueSince = new Map<string, number>();
  /** What was written down lately, by id: a standby that becomes the database may lack it. */
  readonly #written = new Map<string, { row: ConditionRow; at: number }>();
  /** Ids of messages in them that destinations have taken. */
  readonly #arrived = new Set<string>();
  /** The loss after which what was lost is written down again. */
  #mendedLoss: string | null = null;
  /** How long what waits was seen, as written down; null: it was not read yet. */
  #kept: ReadonlyMap<string, number> | null = null;
  #keptAt = Number.NEGATIVE_INFINITY;
  readonly #failures = new Repeats();
  readonly #links: MessageLinks;
  #lastLook: number | null = null;
  #upMs = 0;

  constructor(
    private readonly context: Pick<GatewayContext, 'store' | 'clock' | 'log'>,
    private readonly own: MessageSources,
  ) {
    this.#links = new MessageLinks(context.store.box);
  }

  /** When it looks no more. */
  stop(): void {
    this.#forget();
  }

  /** Looks at what is wrong, and tells whom it concerns. It never throws. */
  async look(): Promise<void> {
    try {
      await this.#look();
    } catch (error) {
      const times = this.#failures.timesDue('look');
      if (times !== null && !(error instanceof DatabaseAway))
        this.context.log.warn({ times, reason: messageOf(error) }, 'conditions not looked at: nobody is told');
    }
  }

  #forget(): void {
    this.context.store.conditionHistory.forgetUnsettled();
    this.#watched.clear();
    this.#dueSince.clear();
    this.#written.clear();
    this.#arrived.clear();
    [this.#lastLook, this.#upMs, this.#kept] = [null, 0, null];
  }

  async #look(): Promise<void> {
    const { store, clock } = this.context;
    const rules = store.messageRules.page(null, MAX_RULES);
    await this.#writeAgain();
    const open = new Map(
      store.conditionHistory.unsettled().flatMap((row) => (row.ended_at ? [] : [[keyOf(row), row]])),
    );
    // Nobody wants to know: then nobody has to look.
    if (rules.length === 0 && open.size === 0) return this.#forget();
    const { seen, isUnknown } = await this.#present();
    this.#kept ??= seenConditions(store.database);
    const now = clock.now();
    const step = this.#lastLook === null ? 0 : Math.min(now - this.#lastLook, MAX_STEP_MS);
    [this.#lastLook, this.#upMs] = [now, this.#upMs + step];
    this.#watch(seen, open, isUnknown, this.#upMs > GRACE_MS ? step : 0);
    await this.#record(seen, open);
    await this.#tell(rules);
    this.#remember();
  }

  /** Restores what a promoted standby lacks, so that nobody is told twice. */
  async #writeAgain(): Promise<void> {
    const { conditionHistory: history, database } = this.context.store;
    const loss = JSON.stringify(lostCommits(database));
    if (loss === this.#mendedLoss) return;
    const lost: ConditionRow[] = [];
    for (const { row } of this.#written.values()) {
      const told = row.told.filter(({ message_id }) => this.#arrived.has(message_id));
      const known = told.length === 0 ? 0 : (history.get(row.id)?.told.length ?? -1);
      if (known < told.length) lost.push({ ...row, told });
    }
    const mend = () => {
      this.#requireSender();
      for (const row of lost) {
        const present = history.get(row.id);
        // If nobody else has to be told, the same look settles it again.
        if (present === null) history.insert({ ...row, settled: false });
        else history.update({ ...present, told: row.told, ended_at: present.ended_at ?? row.ended_at, settled: false });
      }
    };
    if (lost.length > 0) await database.write(mend, null);
    this.#mendedLoss = loss;
  }

  /** What was told and taken, for as long as it may be lost. */
  #remember(): void {
    const { clock, store } = this.context;
    const now = clock.now();
    const deliveredTo = (id: string) => store.eventDeliveries.get(id)?.delivered ?? '';
    const open = new Map(store.conditionHistory.unsettled().map((row) => [row.id, row]));
    for (const [id, row] of open) if (row.told.length > 0) this.#written.set(id, { row, at: now });
    for (const [id, { row, at }] of this.#written) {
      const present = open.has(id) || row.settled ? row : (store.conditionHistory.get(id) ?? row);
      if (present !== row) this.#written.set(id, { row: present, at });
      for (const { destination_id, message_id } of present.told)
        if (!this.#arrived.has(message_id) && deliveredTo(destination_id) >= message_id) this.#arrived.add(message_id);
      if (now - at <= REMEMBERED_MS) continue;
      this.#written.delete(id);
      for (const { message_id } of row.told) this.#arrived.delete(message_id);
    }
  }

  /** What is wrong at any gateway, by {@link keyOf}, and what nobody can say. */
  async #present(): Promise<{ seen: Map<string, Seen>; isUnknown: (row: ConditionRow) => boolean }> {
    const { live, conditions } = this.own;
    const [here, elsewhere = NOBODY_ELSE] = await Promise.all([conditions(), live.askElsewhere?.()]);
    const gateways = live.gateways?.() ?? [];
    const self = gateways.find(({ isThis }) => isThis)?.address ?? '';
    const seen = new Map<string, Seen>();
    const add = (all: readonly ReportedCondition[], gateway: string) => {
      for (const each of all.flatMap((condition) => seenOf(condition, gateway)))
        if (!seen.has(keyOf(each))) seen.set(keyOf(each), each);
    };
    add(here, self);
    const missing = new Set(elsewhere.missing);
    for (const { address, conditions: reported = [] } of elsewhere.counted)
      if (!missing.has(address))
        add(
          reported.filter(({ id }) => isOfOneGateway(id)),
          address,
        );
    const isUnknown = ({ condition, subject }: ConditionRow) =>
      isOfOneGateway(condition) && missing.size > 0 && (missing.has(subject) || subject !== self);
    return { seen, isUnknown };
  }

  /** Counts on. @param step milliseconds since the last look, as far as they count */
  #watch(
    seen: ReadonlyMap<string, Seen>,
    open: ReadonlyMap<string, ConditionRow>,
    isUnknown: (row: ConditionRow) => boolean,
    step: number,
  ): void {
    const now = this.context.store.now();
    const unwatched: Watched = { seenMs: 0, awayMs: 0, since: now, awaySince: null };
    for (const key of seen.keys()) {
      const before = this.#kept?.get(open.get(key)?.id ?? '') ?? 0;
      const { seenMs, since } = this.#watched.get(key) ?? { ...unwatched, seenMs: before };
      this.#watched.set(key, { seenMs: seenMs + step, awayMs: 0, since, awaySince: null });
    }
    for (const key of this.#watched.keys()) if (!seen.has(key) && !open.has(key)) this.#watched.delete(key);
    for (const [key, row] of open) {
      if (seen.has(key) || isUnknown(row)) continue;
      const watched = this.#watched.get(key) ?? unwatched;
      const { awayMs, awaySince } = watched;
      this.#watched.set(key, { ...watched, awayMs: awayMs + step, awaySince: awaySince ?? now });
    }
  }

  /** Writes down what has begun, and what is over. */
  async #record(seen: ReadonlyMap<string, Seen>, open: ReadonlyMap<string, ConditionRow>): Promise<void> {
    const { store } = this.context;
    const { conditionHistory: history, ids, database } = store;
    const now = store.now();
    const anHourAgo = timestamp(Date.parse(now) - HOUR_MS);
    const begun = [...seen].filter(([key]) => !open.has(key) && (this.#watched.get(key)?.seenMs ?? 0) >= RECORD_MS);
    const ended = [...open].filter(([key, { comes_and_goes }]) => {
      const { awayMs } = this.#watched.get(key) ?? { awayMs: 0 };
      return awayMs >= (comes_and_goes ? STEADY_MS : CLEAR_MS);
    });
    for (const batch of batches(begun))
      await database.write(() => {
        this.#requireSender();
        for (const [key, { since, ...each }] of batch) {
          const began_at = since ?? this.#watched.get(key)?.since ?? now;
          const comes_and_goes = history.endedSince(each.condition, each.subject, anHourAgo) + 1 >= FLAPS;
          history.insert(
            history.newRow({
              ...{ id: ids.next('cnd'), created_at: now, ...each, began_at, comes_and_goes, settled: false },
              ...{ told: [], withheld: [] },
            }),
          );
        }
        history.forgetOld(now);
      }, null);
    for (const batch of batches(ended))
      await database.write(() => {
        this.#requireSender();
        for (const [key, { id }] of batch) {
          const row = history.get(id);
          const ended_at = this.#watched.get(key)?.awaySince ?? now;
          if (row) history.update({ ...row, ended_at, message: this.#isRemoved(row) ? REMOVED : row.message });
          this.#watched.delete(key);
        }
      }, null);
  }

  /** Whether a device is not online, but no longer expected either. */
  #isRemoved({ condition, subject }: ConditionRow): boolean {
    return condition === 'device_offline' && this.context.store.devices.get(subject)?.status !== 'enrolled';
  }

  async #tell(rules: readonly MessageRule[]): Promise<void> {
    const { store } = this.context;
    const rows = store.conditionHistory.unsettled();
    if (rows.length === 0) {
      this.#dueSince.clear();
      return this.#keep([]);
    }
    const fleet = fleetSizes(store);
    const now = Date.parse(store.now());
    const silenced = store.conditionHistory.silenced(timestamp(now));
    const destinations = [...new Set(rules.flatMap(({ destination_ids }) => destination_ids))];
    const waiting = new Set<string>();
    const untold = new Set<ConditionRow>();
    const stillDue = new Set<string>();
    for (const destination of destinations) {
      const its = rules.filter(({ destination_ids }) => destination_ids.includes(destination));
      const due: Due[] = [];
      const withheld: Withholding[] = [];
      for (const row of rows) {
        const found = this.#dueOf(row, destination, its, silenced.has(keyOf(row)));
        if (found === null) continue;
        const isTold = row.told.some(({ destination_id }) => destination_id === destination);
        if (row.ended_at === null && !isTold && !silenced.has(keyOf(row))) untold.add(row);
        if (found !== 'later') {
          if ('reason' in found) withheld.push(found);
          else due.push(found);
        }
        if (found === 'later' || !('reason' in found) || found.reason !== 'silenced') waiting.add(row.id);
      }
      for (const each of due) stillDue.add(`${destination} ${each.row.id} ${each.kind}`);
      const situation = { destination, due: this.#gathered(destination, due), rows, fleet, now };
      await this.#send(situation, withheld);
    }
    for (const key of this.#dueSince.keys()) if (!stillDue.has(key)) this.#dueSince.delete(key);
    await this.#keep([...untold]);
    await this.#settle(rows.filter(({ id, ended_at }) => ended_at !== null && !waiting.has(id)));
  }

  /** Writes down how long conditions were seen: a gateway that starts counts on from there. */
  async #keep(untold: readonly ConditionRow[]): Promise<void> {
    const { database } = this.context.store;
    const now = this.context.clock.now();
    if (untold.length === 0 ? this.#kept?.size === 0 : now - this.#keptAt < KEEP_MS) return;
    const seen = new Map(untold.map((row) => [row.id, this.#watched.get(keyOf(row))?.seenMs ?? 0]));
    await database.write(() => {
      this.#requireSender();
      noteSeenConditions(database, seen);
    }, null);
    [this.#kept, this.#keptAt] = [seen, now];
  }

  /** What is due for a destination about a condition now; null: nothing any more; `later`: nothing yet. */
  #dueOf(
    row: ConditionRow,
    destination: string,
    rules: readonly MessageRule[],
    silenced: boolean,
  ): Due | Withholding | 'later' | null {
    const { store } = this.context;
    const now = store.now();
    const at = Date.parse(now);
    // It would get that when it no longer fails.
    if (row.condition === 'event_destination' && row.subject === destination) return null;
    const concerned = rules.filter((rule) => whyNotConcerned(rule, row) === null);
    const [first] = concerned;
    if (first === undefined) return null;
    const told = row.told.filter(({ destination_id }) => destination_id === destination);
    const [begun, last] = [told[0], told.at(-1)];
    const awake = concerned.find((rule) => !isQuiet(rule, row.severity, at));
    const wanted = (kind: Due['kind'], rule = awake): Due | Withholding =>
      silenced
        ? { row, rule: first, reason: 'silenced' }
        : rule === undefined
          ? { row, rule: first, reason: 'quiet hours' }
          : { row, rule, kind };
    if (begun === undefined) {
      const held = row.withheld.some((each) => each.destination_id === destination && each.reason !== 'silenced');
      if (row.ended_at !== null) return held && !silenced ? wanted('missed') : null;
      const { seenMs } = this.#watched.get(keyOf(row)) ?? { seenMs: 0 };
      const ready = concerned.filter(({ after_minutes }) => seenMs >= after_minutes * MINUTE_MS);
      if (ready.length === 0) return 'later';
      return wanted(
        'begun',
        ready.find((rule) => !isQuiet(rule, row.severity, at)),
      );
    }
    if (row.ended_at !== null) return told.some(({ kind }) => kind === 'over') ? null : wanted('over');
    const reminders = concerned.flatMap(({ remind_minutes }) => (remind_minutes > 0 ? [remind_minutes] : []));
    const isDue = at - Date.parse(last?.at ?? now) >= Math.min(...reminders) * MINUTE_MS;
    if (reminders.length === 0 || !isDue || row.acknowledged_at !== null || silenced || !awake) return 'later';
    return { row, rule: awake, kind: 'reminder' };
  }

  /** What is due for as long as things with one cause take to be noticed. */
  #gathered(destination: string, due: readonly Due[]): Due[] {
    const now = this.context.clock.now();
    const since = (each: Due) => {
      const key = `${destination} ${each.row.id} ${each.kind}`;
      const known = this.#dueSince.get(key) ?? now;
      this.#dueSince.set(key, known);
      return known;
    };
    const same = by(due, ({ row, kind }) => `${row.condition} ${kind}`);
    return [...same.values()].flatMap((all) => {
      const first = Math.min(...all.map(since));
      // What concerns the gateway alone has nothing to wait for.
      const waits = all.some(({ row }) => row.name !== '') ? GATHER_MS : 0;
      return now - first >= waits ? all : [];
    });
  }

  async #send(situation: Situation, withheld: readonly Withholding[]): Promise<void> {
    const { due, destination, now } = situation;
    const { sentMessages } = this.context.store;
    const left = MESSAGES_AN_HOUR - sentMessages.since(destination, timestamp(now - HOUR_MS)).length;
    if (due.length === 0 || left > 0)
      return this.#write(destination, due.length === 0 ? [] : draftsOf(situation, left), withheld);
    const late = due.map(({ row, rule }): Withholding => ({ row, rule, reason: 'too many messages' }));
    return this.#write(destination, [], [...withheld, ...late]);
  }

  /** Queues messages and writes down who was told of what, at once or not at all. */
  async #write(destination: string, drafts: readonly Drafted[], withheld: readonly Withholding[]): Promise<void> {
    const { store } = this.context;
    const { conditionHistory: history, sentMessages, eventDeliveries, eventDestinations, database } = store;
    const news = withheld.filter(({ row, rule, reason }) => !wasWithheld(row, destination, rule.id, reason));
    if (drafts.length + news.length === 0) return;
    await database.write(() => {
      this.#requireSender();
      const now = store.now();
      for (const same of by(news, ({ rule, reason }) => `${rule.id} ${reason}`).values()) {
        const [first] = same;
        if (first === undefined) continue;
        const { rule, reason } = first;
        history.addWithheld(rowIds(same), { rule_id: rule.id, destination_id: destination, reason, at: now });
      }
      // It was deleted while the message was written.
      if (eventDestinations.get(destination) === null) return;
      const ids = eventDeliveries.addMessages(
        drafts.map(({ content, incident }) => ({
          destinationId: destination,
          content: (id): Message => ({ ...content, incident, links: this.#linksFor(id, content.kind, now) }),
        })),
      );
      for (const [place, { told, content }] of drafts.entries()) {
        const id = ids[place] ?? '';
        const { kind, title } = content;
        sentMessages.insert({ id, created_at: now, destination_id: destination, kind, title });
        for (const same of by(told, ({ rule, kind: what }) => `${rule.id} ${what}`).values()) {
          const [first] = same;
          if (first === undefined) continue;
          const common = { destination_id: destination, rule_id: first.rule.id, message_id: id };
          history.addTold(rowIds(same), { ...common, kind: first.kind, at: now });
        }
      }
      sentMessages.forgetBefore(timestamp(Date.parse(now) - LINK_MS));
    }, null);
  }

  #linksFor(id: string, kind: Message['kind'], now: string): Message['links'] {
    const { origin } = this.own;
    const page = `${origin}${MESSAGE_PATH}${this.#links.token(id, Date.parse(now) + LINK_MS)}`;
    const dashboard = { text: 'Open the dashboard', url: `${origin}/#/condition-history` };
    return kind === 'over' ? [dashboard] : [{ text: 'Acknowledge or silence', url: page }, dashboard];
  }

  async #settle(rows: readonly ConditionRow[]): Promise<void> {
    if (rows.length === 0) return;
    const { conditionHistory: history, database } = this.context.store;
    await database.write(() => {
      this.#requireSender();
      history.settle(rows.map(({ id }) => id));
    }, null);
  }

  /** Another gateway may have become the primary node meanwhile, and tells the same. */
  #requireSender(): void {
    if (!this.own.isSender()) throw new NotSender();
  }
}

class NotSender extends Error {
  constructor() {
    super('another gateway tells now');
    this.name = 'NotSender';
  }
}

/** More than there can be. */
const MAX_RULES = 1_000;

function keyOf({ condition, subject }: Pick<ConditionRow, 'condition' | 'subject'>): string {
  return `${condition} ${subject}`;
}

function seenOf({ id, severity, message, remedy, subjects }: ReportedCondition, gateway: string): Seen[] {
  const whole: ConditionSubject = isOfOneGateway(id)
    ? { key: gateway, name: gateway, site: null }
    : { key: '', name: '', site: null };
  return (subjects ?? [whole]).map((subject) => ({
    ...{ condition: id, subject: subject.key, name: clean(subject.name), site: subject.site, severity },
    ...{ labels: subject.labels ?? {}, network: subject.network ?? null, since: subject.since ?? null },
    ...{ message: clean(subject.message ?? message), remedy },
  }));
}

/** Text that agents have a part in; nearly all is plain. */
function clean(text: string): string {
  if (text.length <= MAX_TEXT && /^[\x20-\x7e]*$/.test(text)) return text;
  return shortText(printable(text), MAX_TEXT);
}

/** Whether that was written down since the destination was told last. */
function wasWithheld(row: ConditionRow, destination: string, rule: string, reason: WithheldFor): boolean {
  const last = row.withheld.filter((each) => each.destination_id === destination && each.rule_id === rule).at(-1);
  return last?.reason === reason;
}

const rowIds = (all: readonly { readonly row: ConditionRow }[]): string[] => all.map(({ row }) => row.id);

function* batches<T>(all: readonly T[]): Generator<readonly T[]> {
  for (let at = 0; at < all.length; at += BATCH) yield all.slice(at, at + BATCH);
}
