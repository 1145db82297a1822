import { setTimeout as delay } from 'node:timers/promises';
import type { PostgresServer } from '../../../support/postgres-server.ts';
import { YearGateway } from './year-gateway.ts';
import { type Burst, FAILED, OUTCOMES, REFUSED, REQUEST_BYTES } from './year-traffic.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const GATEWAYS = 3;
/** Of the last days, whose hours are kept, each endpoint has traffic in each hour; of the others, in one. */
const FULL_DAYS = 31;
/** Seconds of a run that may be lost or counted twice when it ends or moves: the minute that is not written, and some. */
const MOVE_SLACK = 70;

type Counted = 'requests' | 'failed' | 'refused' | 'unsure' | 'online' | 'slack';

/** What clients have done and met at one endpoint on one day. */
export interface Day {
  readonly requests: number;
  readonly failed: number;
  readonly refused: number;
  readonly received: number;
  /** Of the requests, those that a gateway may have lost. */
  readonly unsure: number;
  readonly online: number;
  /** Seconds by which that may be wrong. */
  readonly slack: number;
}

/** Where the endpoints are, what clients have counted of them, and all that happens to their gateways within a year. */
export class SimulatedYear {
  readonly gateways: readonly YearGateway[];
  /** Milliseconds since 1970. */
  now: number;
  /** How often each fault was. */
  readonly faults: Record<string, number> = {};
  readonly #sent: Record<Counted, Float64Array>;
  /** The gateway of each endpoint; null: it is offline. */
  readonly #at: (YearGateway | null)[];
  readonly #since: number[];
  /** Bursts that are in no file yet, and that are not in PostgreSQL, with their days. */
  readonly #unwritten = new Map<YearGateway, [day: number, burst: Burst][]>();
  readonly #notPassedOn = new Map<YearGateway, [day: number, burst: Burst][]>();
  #chance = 1;
  #isDatabaseThere = true;

  constructor(
    private readonly database: PostgresServer,
    readonly size: { readonly endpoints: number; readonly days: number },
    readonly begin: number,
  ) {
    const { endpoints, days } = size;
    this.now = begin;
    const table = () => new Float64Array(endpoints * days);
    this.#sent = {
      requests: table(),
      failed: table(),
      refused: table(),
      unsure: table(),
      online: table(),
      slack: table(),
    };
    this.#at = Array.from({ length: endpoints }, () => null);
    this.#since = Array.from({ length: endpoints }, () => begin);
    const ask = async (self: YearGateway, question: string) => {
      const others = this.gateways.filter((gateway) => gateway !== self && gateway.isRunning);
      const answers = others.map(async (gateway) => [gateway.node, await gateway.answer(question)] as const);
      return Object.fromEntries(await Promise.all(answers));
    };
    this.gateways = Array.from(
      { length: GATEWAYS },
      (_, at) => new YearGateway(`192.0.2.${at + 1}:443`, database.url(), ask),
    );
    for (const gateway of this.gateways) {
      this.#unwritten.set(gateway, []);
      this.#notPassedOn.set(gateway, []);
    }
  }

  /** What clients have counted. */
  day(endpoint: number, day: number): Day {
    const place = endpoint * this.size.days + day;
    const of = (name: Counted) => this.#sent[name][place] ?? 0;
    const requests = of('requests');
    return {
      ...{ requests, failed: of('failed'), refused: of('refused'), received: requests * REQUEST_BYTES },
      ...{ unsure: of('unsure'), online: of('online'), slack: of('slack') },
    };
  }

  async run(onDay: (day: number) => void): Promise<void> {
    const { days } = this.size;
    await Promise.all(this.gateways.map((gateway) => gateway.start(this.now)));
    this.#comeOnline(this.#at.keys());
    for (let day = 0; day < days; day++) {
      for (let hour = 0; hour < 24; hour++) await this.#hour(day, hour);
      onDay(day);
    }
  }

  /** Whether something happens on a day: it is said as a part of the year. */
  #is(day: number, part: number): boolean {
    return day === Math.floor(this.size.days * part);
  }

  async #hour(day: number, hour: number): Promise<void> {
    const { days } = this.size;
    const begin = this.begin + day * DAY + hour * HOUR;
    const victim = this.gateways[day % GATEWAYS] as YearGateway;
    this.#tickLater(begin + 10 * MINUTE);
    const isFull = day >= days - FULL_DAYS;
    this.#burst((endpoint) => isFull || endpoint % 24 === hour);
    this.#tickLater(begin + 11 * MINUTE);
    const isAway = (endpoint: number) => (endpoint + day) % 30 === 0;
    const away = [...this.#at.keys()].filter(isAway);
    if (hour === 3) {
      this.#tickLater(begin + 20 * MINUTE);
      this.#goOffline(away);
    }
    if (hour === 5) {
      this.#tickLater(begin + 20 * MINUTE);
      this.#comeOnline(away);
    }
    if (hour === 7) await this.#restart(victim, begin + 30 * MINUTE);
    if (hour === 13 && day % 3 === 1)
      await this.#kill(this.gateways[Math.floor(day / 3) % GATEWAYS] as YearGateway, begin);
    if (hour === 17 && this.#is(day, 0.3)) await this.#powerCut(begin + 30 * MINUTE);
    if (hour === 19 && (this.#is(day, 0.6) || day === days - 4)) await this.#loseDisk(victim, begin + 30 * MINUTE);
    if (hour === 9 && (this.#is(day, 0.4) || day === days - 8)) await this.#loseDatabase();
    if (hour === 9 && (this.#is(day - 1, 0.4) || day === days - 7)) await this.#findDatabase();
    const end = this.#tick(begin + HOUR);
    if (hour === 21 && day % 10 === 5 && this.#isDatabaseThere) {
      this.#count('PostgreSQL killed while hours are passed on');
      this.#isDatabaseThere = false;
      await delay(this.#random() * 5);
      await this.database.kill();
      await this.database.restart();
      await end;
      this.#isDatabaseThere = true;
    }
    await end;
  }

  /** As {@link SimulatedYear.#tick}, with the next one. */
  #tickLater(to: number): void {
    this.now = to;
    for (const gateway of this.gateways) if (gateway.isRunning) gateway.later('tick', to);
  }

  async #tick(to: number): Promise<void> {
    const isHour = Math.floor(to / HOUR) > Math.floor(this.now / HOUR);
    this.now = to;
    await Promise.all(
      this.gateways
        .filter(({ isRunning }) => isRunning)
        .map(async (gateway) => {
          const written = this.#unwritten.get(gateway) ?? [];
          await gateway.call('tick', to);
          written.length = 0;
          if (isHour && this.#isDatabaseThere) this.#notPassedOn.set(gateway, []);
        }),
    );
  }

  /** @param isChosen which endpoints have requests */
  #burst(isChosen: (endpoint: number) => boolean): void {
    const bursts = new Map<YearGateway, Burst[]>(this.gateways.map((gateway) => [gateway, []]));
    const day = Math.floor((this.now - this.begin) / DAY);
    for (const [endpoint, gateway] of this.#at.entries()) {
      if (gateway === null || !isChosen(endpoint)) continue;
      const luck = this.#random();
      const burst: Burst = [
        endpoint,
        1 + Math.floor(luck * 5),
        luck < 0.9 ? 0 : Math.floor(luck * 1e6) % OUTCOMES.length,
      ];
      bursts.get(gateway)?.push(burst);
      this.#unwritten.get(gateway)?.push([day, burst]);
      this.#notPassedOn.get(gateway)?.push([day, burst]);
      this.#add('requests', endpoint, day, burst[1]);
      if (burst[2] === FAILED) this.#add('failed', endpoint, day, burst[1]);
      if (burst[2] === REFUSED) this.#add('refused', endpoint, day, burst[1]);
    }
    for (const [gateway, all] of bursts) if (all.length > 0) gateway.later('traffic', all);
  }

  #comeOnline(endpoints: Iterable<number>): void {
    const running = this.gateways.filter(({ isRunning }) => isRunning);
    const coming = new Map<YearGateway, number[]>(running.map((gateway) => [gateway, []]));
    for (const endpoint of endpoints) {
      const gateway = running[endpoint % running.length];
      if (gateway === undefined || this.#at[endpoint] !== null) continue;
      this.#at[endpoint] = gateway;
      this.#since[endpoint] = this.now;
      coming.get(gateway)?.push(endpoint);
    }
    for (const [gateway, all] of coming) gateway.later('online', all);
  }

  /** @param gateway which has ended: nobody tells it */
  #goOffline(endpoints: Iterable<number>, slack = MOVE_SLACK): void {
    const going = new Map<YearGateway, number[]>(this.gateways.map((gateway) => [gateway, []]));
    for (const endpoint of endpoints) {
      const gateway = this.#at[endpoint];
      if (gateway == null) continue;
      this.#at[endpoint] = null;
      this.#noteOnline(endpoint, slack);
      going.get(gateway)?.push(endpoint);
    }
    for (const [gateway, all] of going) if (gateway.isRunning && all.length > 0) gateway.later('offline', all);
  }

  /** Ends what is counted of the endpoints' times online: nothing is open any more. */
  noteAll(): void {
    for (const [endpoint, gateway] of this.#at.entries()) if (gateway !== null) this.#noteOnline(endpoint, 0);
  }

  #noteOnline(endpoint: number, slack: number): void {
    for (let from = this.#since[endpoint] ?? 0; from < this.now; ) {
      const day = Math.floor((from - this.begin) / DAY);
      const to = Math.min(this.now, this.begin + (day + 1) * DAY);
      this.#add('online', endpoint, day, (to - from) / 1000);
      from = to;
    }
    this.#since[endpoint] = this.now;
    this.#add('slack', endpoint, Math.min(this.size.days - 1, Math.floor((this.now - this.begin) / DAY)), slack);
  }

  #endpointsAt(gateway: YearGateway): number[] {
    return [...this.#at.keys()].filter((endpoint) => this.#at[endpoint] === gateway);
  }

  async #restart(gateway: YearGateway, at: number): Promise<void> {
    this.#count('restarts');
    await this.#tick(at);
    const moved = this.#endpointsAt(gateway);
    await gateway.stop();
    this.#goOffline(moved);
    this.#comeOnline(moved);
    await this.#tick(at + 5 * MINUTE);
    await gateway.start(this.now);
  }

  /** Kills a gateway while it writes a minute, or an hour. */
  async #kill(gateway: YearGateway, begin: number): Promise<void> {
    const isHourly = this.#random() < 0.5;
    this.#count(isHourly ? 'kill -9 while an hour is written' : 'kill -9 while a minute is written');
    await this.#tick(begin + 58 * MINUTE);
    if (isHourly) await this.#tick(begin + 59 * MINUTE);
    this.#burst((endpoint) => endpoint % 3 === 0);
    const lost = [...(this.#unwritten.get(gateway) ?? [])];
    const ticked = this.#tick(this.now + MINUTE).catch(() => {}); // it is killed meanwhile
    await delay(this.#random() * 10);
    await gateway.kill();
    await ticked;
    this.#ended(gateway, lost, MOVE_SLACK + 60);
    await this.#tick(this.now + 30_000);
    await gateway.start(this.now);
  }

  /** What was counted at a gateway that has ended may be lost, and its endpoints move. */
  #ended(gateway: YearGateway, lost: readonly [day: number, burst: Burst][], slack: number): void {
    for (const [day, [endpoint, requests]] of lost) this.#add('unsure', endpoint, day, requests);
    this.#unwritten.set(gateway, []);
    const moved = this.#endpointsAt(gateway);
    this.#goOffline(moved, slack);
    this.#comeOnline(moved);
  }

  /** All gateways are killed, and nothing runs for an hour. */
  async #powerCut(at: number): Promise<void> {
    this.#count('hours without any gateway');
    await this.#tick(at);
    await Promise.all(this.gateways.map((gateway) => gateway.kill()));
    for (const gateway of this.gateways) this.#ended(gateway, this.#unwritten.get(gateway) ?? [], MOVE_SLACK + 60);
    this.now += HOUR - 20 * MINUTE;
    await Promise.all(this.gateways.map((gateway) => gateway.start(this.now)));
    this.#comeOnline(this.#at.keys());
  }

  /** A gateway is gone with its disk; a new one has its name. */
  async #loseDisk(gateway: YearGateway, at: number): Promise<void> {
    this.#count('gateways that have lost their disk');
    await this.#tick(at);
    await this.throwAway(gateway);
    await this.#tick(at + 10 * MINUTE);
    await gateway.start(this.now);
  }

  async throwAway(gateway: YearGateway): Promise<void> {
    await gateway.kill();
    gateway.loseDisk();
    this.#ended(gateway, this.#notPassedOn.get(gateway) ?? [], 3_700);
    this.#notPassedOn.set(gateway, []);
  }

  async #loseDatabase(): Promise<void> {
    this.#count('days without PostgreSQL');
    await this.database.kill();
    this.#isDatabaseThere = false;
  }

  async #findDatabase(): Promise<void> {
    await this.database.restart();
    this.#isDatabaseThere = true;
  }

  #add(what: Counted, endpoint: number, day: number, value: number): void {
    const place = endpoint * this.size.days + day;
    const of = this.#sent[what];
    of[place] = (of[place] ?? 0) + value;
  }

  #count(fault: string): void {
    this.faults[fault] = (this.faults[fault] ?? 0) + 1;
  }

  /** From 0 to 1, the same in each run. */
  #random(): number {
    this.#chance = (Math.imul(this.#chance, 1_103_515_245) + 12_345) & 0x7fff_ffff;
    return this.#chance / 0x8000_0000;
  }
}
