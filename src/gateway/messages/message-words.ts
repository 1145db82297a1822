import { clientNetwork } from '../../lib/network/ip-address.ts';
import { durationText } from '../../lib/terminal-text.ts';
import { CONDITIONS } from '../../management/condition-kinds.ts';
import type { Message } from '../events/message.ts';
import type { ConditionRow } from '../store/condition-history.ts';
import type { Store } from '../store/store.ts';

/** Conditions of one kind that one message is about. */
export interface Group {
  readonly rows: readonly [ConditionRow, ...ConditionRow[]];
  /** What went away together, and why probably; null: nothing is known of that. */
  readonly cause: { readonly what: string; readonly why: string } | null;
}

/** Devices that went offline within this time may have gone together. */
const TOGETHER_MS = 3 * 60_000;
/** One device alone says nothing about what it is connected by. */
const MIN_TOGETHER = 2;
/** What is written down of a device that is no longer expected. */
export const REMOVED = 'revoked or deleted while offline';
const MAX_LINES = 20;
const MAX_IN_TITLE = 3;

/** How many devices there are that could be offline, by what they have in common. */
export interface FleetSizes {
  readonly all: number;
  readonly sites: ReadonlyMap<string, number>;
  readonly networks: ReadonlyMap<string, number>;
}

export function fleetSizes({ devices }: Pick<Store, 'devices'>): FleetSizes {
  const [sites, networks] = [new Map<string, number>(), new Map<string, number>()];
  let all = 0;
  for (const { site, ip, devices: count } of devices.seenBySiteAndAddress()) {
    all += count;
    sites.set(site, (sites.get(site) ?? 0) + count);
    const network = clientNetwork(ip ?? '');
    networks.set(network, (networks.get(network) ?? 0) + count);
  }
  return { all, sites, networks };
}

/** Puts together what one message says: by cause where that is known, else by kind and site. */
export function groupsOf(rows: readonly ConditionRow[], fleet: FleetSizes): Group[] {
  let rest = [...rows];
  const groups: Group[] = [];
  const take = (taken: readonly ConditionRow[], cause: Group['cause']) => {
    const [first, ...others] = taken;
    if (first === undefined) return;
    groups.push({ rows: [first, ...others], cause });
    const those = new Set(taken);
    rest = rest.filter((row) => !those.has(row));
  };
  const devices = () => rest.filter(({ condition }) => condition === 'device_offline');
  const sites = () => by(devices(), ({ site }) => site ?? '');
  const everything = devices();
  if (sites().size > 1 && wentTogether(everything, fleet.all))
    take(everything, { what: `all ${everything.length} devices`, why: "this gateway's own connection or name" });
  for (const [network, together] of by(devices(), (row) => row.network ?? '')) {
    const isOneSite = new Set(together.map(({ site }) => site)).size === 1;
    // What a site is called says more than an address.
    if (isOneSite && fleet.sites.get(together[0]?.site ?? '') === together.length) continue;
    if (network !== '' && wentTogether(together, fleet.networks.get(network)))
      take(together, { what: `${together.length} devices behind ${network}`, why: 'their internet connection' });
  }
  for (const [site, together] of sites())
    if (wentTogether(together, fleet.sites.get(site)))
      take(together, { what: `${together.length} devices of ${site}`, why: 'its internet connection' });
  for (const same of by(rest, ({ condition, site }) => `${condition} ${site ?? ''}`).values()) take(same, null);
  return groups;
}

/** Whether all devices that have something in common went offline at about the same time. */
function wentTogether(rows: readonly ConditionRow[], size: number | undefined): boolean {
  if (rows.length < MIN_TOGETHER || rows.length !== size) return false;
  const times = rows.map(({ began_at }) => Date.parse(began_at));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  return last - first <= TOGETHER_MS;
}

export function by<T>(all: readonly T[], key: (each: T) => string): Map<string, T[]> {
  const found = new Map<string, T[]>();
  for (const each of all) {
    const same = found.get(key(each));
    if (same) same.push(each);
    else found.set(key(each), [each]);
  }
  return found;
}

/** Words in a time zone, as of a moment. */
export class MessageWords {
  constructor(
    private readonly now: number,
    private readonly timeZone: string,
  ) {}

  /** What began. @param isReminder whether that was told before */
  begun(group: Group, isReminder: boolean): Omit<Message, 'links' | 'incident'> {
    const { rows } = group;
    const [first] = rows;
    const since = this.#time(earliest(rows.map(({ began_at }) => began_at)));
    const subject = this.#subject(group);
    const title = isDevice(first)
      ? `${subject} ${plural(rows)} offline since ${since}${group.cause ? `: ${group.cause.why}` : ''}`
      : `${subject}, since ${since}`;
    const flapping = rows.filter(({ comes_and_goes }) => comes_and_goes);
    return {
      kind: isReminder ? 'reminder' : 'begun',
      severity: rows.some(({ severity }) => severity === 'critical') ? 'critical' : 'warning',
      title: isReminder ? `Still: ${title}` : title,
      lines: [
        ...this.#lines(group),
        ...(flapping.length > 0
          ? [
              'It comes and goes: it began several times within an hour. The next message comes when it has been over for 30 min.',
            ]
          : []),
      ],
      remedy: first.remedy,
      ended: [],
    };
  }

  /** What is over. @param left what of the same is not */
  over(
    rows: Group['rows'],
    left: readonly ConditionRow[],
    ended: readonly string[],
  ): Omit<Message, 'links' | 'incident'> {
    const [first] = rows;
    const began = earliest(rows.map(({ began_at }) => began_at));
    const end = rows.map(({ ended_at }) => ended_at ?? '').reduce((a, b) => (a > b ? a : b));
    const lasted = durationText((Date.parse(end) - Date.parse(began)) / 1000);
    const subject = this.#subject({ rows, cause: null });
    const of = left.length > 0 ? ` (${rows.length} of ${rows.length + left.length})` : '';
    const isRemoved = rows.every(({ message }) => message === REMOVED);
    const back = isRemoved ? `${was(rows)} ${REMOVED}` : `${plural(rows)} online again, after ${lasted}`;
    const title = isDevice(first) ? `${subject}${of} ${back}` : `Over: ${subject}${of}, after ${lasted}`;
    return {
      kind: left.length > 0 ? 'changed' : 'over',
      severity: left.length > 0 ? 'warning' : 'resolved',
      title,
      lines: [
        `From ${this.#time(began)} to ${this.#time(end)}.`,
        ...(rows.length > 1 ? listed(rows.map(nameOf)) : []),
        ...(left.length > 0 ? ['Not over:', ...listed(left.map(nameOf))] : []),
      ],
      remedy: null,
      ended,
    };
  }

  /** Everything in one. @param why what the reader is told first */
  summary(
    { begun, over }: { begun: readonly Group[]; over: readonly (readonly ConditionRow[])[] },
    { missed, why, ended }: { missed: readonly ConditionRow[]; why: string; ended: readonly string[] },
  ): Omit<Message, 'links' | 'incident'> {
    const present = begun.map((group) => `${this.begun(group, false).title}.`);
    const past = [...over, ...by(missed, ({ condition }) => condition).values()].flatMap(([first, ...others]) =>
      first ? [`${this.over([first, ...others], [], []).title}.`] : [],
    );
    const open = begun.flatMap(({ rows }) => rows);
    const overCount = over.flat().length + missed.length;
    const counts = [
      ...(open.length > 0 ? [`${open.length} ${open.length === 1 ? 'problem' : 'problems'}`] : []),
      ...(overCount > 0 ? [`${overCount} over`] : []),
    ];
    const severities = open.map(({ severity }) => severity);
    return {
      kind: 'summary',
      severity: severities.includes('critical') ? 'critical' : open.length > 0 ? 'warning' : 'resolved',
      title: `Summary: ${counts.join(', ')}`,
      lines: [
        why,
        ...(present.length > 0 ? ['Now:', ...listed(present)] : []),
        ...(past.length > 0 ? ['Over:', ...listed(past)] : []),
      ],
      remedy: null,
      ended,
    };
  }

  #subject({ rows, cause }: Group): string {
    const [first] = rows;
    if (cause) return cause.what;
    const names = isDevice(first) ? rows.map(({ name }) => name) : rows.map(nameOf).filter((name) => name !== '');
    const shown = names.slice(0, MAX_IN_TITLE).join(', ');
    const more = names.length - MAX_IN_TITLE;
    const text = more > 0 ? `${shown} and ${more} more` : shown;
    const isOneSite = rows.every(({ site }) => site === first.site);
    if (isDevice(first) && rows.length > 1)
      return `${rows.length} devices${isOneSite ? ` of ${first.site}` : ''} (${text})`;
    if (isDevice(first)) return `${text} at ${first.site}`;
    const title = titleOf(first);
    return text === '' ? title : `${title}: ${text}`;
  }

  #lines({ rows }: Group): string[] {
    const [first] = rows;
    if (isDevice(first))
      return rows.length === 1
        ? [`Last seen from ${first.network || 'an unknown address'}.`]
        : listed(rows.map(nameOf));
    return listed(rows.map((row) => (nameOf(row) === '' ? `${row.message}.` : `${nameOf(row)}: ${row.message}.`)));
  }

  /** `03:12 UTC`; with its date when that is not today. */
  #time(at: string): string {
    const parts = (moment: number) => {
      const format = new Intl.DateTimeFormat('en-GB', {
        ...{ timeZone: this.timeZone, year: 'numeric', month: '2-digit', day: '2-digit' },
        ...{ hour: '2-digit', minute: '2-digit', hourCycle: 'h23', timeZoneName: 'short' },
      });
      const found = Object.fromEntries(format.formatToParts(moment).map(({ type, value }) => [type, value]));
      const { year, month, day, hour, minute, timeZoneName } = found;
      return { date: `${year}-${month}-${day}`, time: `${hour}:${minute} ${timeZoneName}` };
    };
    const [then, today] = [parts(Date.parse(at)), parts(this.now)];
    return then.date === today.date ? then.time : `${then.date} ${then.time}`;
  }
}

const isDevice = ({ condition }: Pick<ConditionRow, 'condition'>): boolean => condition === 'device_offline';
const plural = (rows: readonly unknown[]): string => (rows.length === 1 ? 'is' : 'are');

const was = (rows: readonly unknown[]): string => (rows.length === 1 ? 'was' : 'were');

/** What people call what a condition concerns; empty: the gateway. */
export function nameOf({ condition, name, site }: Pick<ConditionRow, 'condition' | 'name' | 'site'>): string {
  return isDevice({ condition }) ? `${name} at ${site}` : name;
}

/** Gateways of other versions may have others. */
export function titleOf({ condition, message }: Pick<ConditionRow, 'condition' | 'message'>): string {
  return Object.entries(CONDITIONS).find(([id]) => id === condition)?.[1].title ?? message;
}

function earliest(times: readonly string[]): string {
  return times.reduce((a, b) => (a < b ? a : b));
}

function listed(lines: readonly string[]): string[] {
  const more = lines.length - MAX_LINES;
  return [...lines.slice(0, MAX_LINES).map((line) => `• ${line}`), ...(more > 0 ? [`• and ${more} more`] : [])];
}
