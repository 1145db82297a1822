import { EventEmitter } from 'node:events';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { pino } from 'pino';
import { EndpointRegistry } from '../../../../src/gateway/endpoints/endpoint-registry.ts';
import type { OnlineEndpoint } from '../../../../src/gateway/endpoints/online-endpoint.ts';
import { EndpointTraffic } from '../../../../src/gateway/endpoints/traffic-counts.ts';
import { HistoryElsewhere } from '../../../../src/gateway/history/history-elsewhere.ts';
import { HistoryFile } from '../../../../src/gateway/history/history-file.ts';
import type { HistoryRange, HistoryStep, SubjectName } from '../../../../src/gateway/history/history-points.ts';
import { SharedHistory } from '../../../../src/gateway/history/shared-history.ts';
import { historyAnswer } from '../../../../src/gateway/history/start-history.ts';
import { TrafficHistory } from '../../../../src/gateway/history/traffic-history.ts';
import { Postgres } from '../../../../src/gateway/store/shared/postgres.ts';
import type { Store } from '../../../../src/gateway/store/store.ts';
import type { Clock } from '../../../../src/lib/time/clock.ts';
import { type Burst, FAILED, REFUSED, REQUEST_BYTES, RESPONSE_BYTES, type Sums, urlOf } from './year-traffic.ts';

/** A gateway's history in a process of its own, whose clock its parent moves. */
export interface YearNodeOptions {
  readonly folder: string;
  readonly node: string;
  readonly databaseUrl: string;
  /** Milliseconds since 1970. */
  readonly at: number;
}

/** A clock that jumps: what was due meanwhile happens once. */
class JumpingClock implements Clock {
  readonly #due = new Set<{ at: number; work: () => void }>();

  constructor(private ms: number) {}

  readonly now = () => this.ms;
  readonly random = () => 0.5;

  sleep(): Promise<void> {
    throw new Error('nothing here sleeps');
  }

  after(ms: number, work: () => void): () => void {
    const sleeper = { at: this.ms + ms, work };
    this.#due.add(sleeper);
    return () => this.#due.delete(sleeper);
  }

  jump(to: number): void {
    this.ms = to;
    for (const sleeper of [...this.#due].filter(({ at }) => at <= to)) {
      this.#due.delete(sleeper);
      sleeper.work();
    }
  }
}

function yearNode(
  { folder, node, databaseUrl, at }: YearNodeOptions,
  askOthers: (question: string) => Promise<object>,
) {
  const clock = new JumpingClock(at);
  const log = pino({ level: 'warn' }, { write: (line: string) => process.send?.({ warning: JSON.parse(line) }) });
  const file = HistoryFile.open(join(folder, 'history.db'), 395, log);
  const postgres = new Postgres(databaseUrl);
  const elsewhere = new HistoryElsewhere(
    new SharedHistory(postgres.ask, node, 395),
    async (question) => new Map(Object.entries((await askOthers(question)) as Record<string, string>)),
    { node, begun: () => file.begun },
    log,
  );
  let taken: Promise<void> = Promise.resolve();
  const watched = {
    read: elsewhere.read.bind(elsewhere),
    readBriefly: elsewhere.readBriefly.bind(elsewhere),
    top: elsewhere.top.bind(elsewhere),
    take: (from: HistoryFile) => {
      taken = elsewhere.take(from);
      return taken;
    },
  };
  const ofAuthtoken = (id: string) => ({ id: id.replace('cr', 'dev') });
  const store = { devices: { byCredential: ofAuthtoken, ofAuthtoken } } as unknown as Store;
  const history = new TrafficHistory({ store, clock, log }, { file, node, elsewhere: watched, time: clock.now });
  const endpoints = new EndpointRegistry();
  const sessions = Object.assign(new EventEmitter(), { sessions: [] });
  const online = new Map<number, { endpoint: OnlineEndpoint; session: object; traffic: EndpointTraffic }>();
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  const settled = async () => {
    await history.here({ of: [], range: { from: 0, to: 0, step: 1 }, isBrief: false });
    // It begins when all is written.
    await new Promise((resolve) => setImmediate(resolve));
    await taken;
  };
  const summed = ({ values, known, online: up }: HistoryStep): Sums => {
    const [failed = 0, refused = 0] = [values.ended[6], values.ended[5]];
    return [values.requests, failed, refused, values.received, known, up];
  };
  return {
    start: async () => {
      await history.start();
      history.follow(endpoints, sessions);
    },
    tick: async (to: number) => {
      clock.jump(to);
      await settled();
    },
    online: async (numbers: readonly number[]) => {
      for (const number of numbers) {
        const credential = { id: `cr_${number}` };
        const session = { credential, endedBy: 'lost' };
        const traffic = new EndpointTraffic();
        const endpoint = { url: urlOf(number), traffic, owner: { credential } } as unknown as OnlineEndpoint;
        online.set(number, { endpoint, session, traffic });
        sessions.emit('added', session);
        endpoints.emit('added', endpoint);
      }
    },
    offline: async (numbers: readonly number[]) => {
      for (const number of numbers) {
        const { endpoint, session } = online.get(number) ?? {};
        if (endpoint === undefined) throw new Error(`endpoint ${number} is not online at ${node}`);
        online.delete(number);
        endpoints.emit('removed', endpoint);
        sessions.emit('removed', session);
      }
    },
    traffic: async (bursts: readonly Burst[]) => {
      for (const [number, requests, outcome] of bursts) {
        const traffic = online.get(number)?.traffic;
        if (traffic === undefined) throw new Error(`endpoint ${number} is not online at ${node}`);
        for (let sent = 0; sent < requests; sent++) {
          traffic.countRequest();
          if (outcome === FAILED) traffic.countFailure(7);
          else if (outcome === REFUSED) traffic.countRefusal('deny', 1);
          else traffic.countResponse(outcome === 0 ? 200 : 404, 3 + 40 * outcome);
          traffic.received += REQUEST_BYTES;
          traffic.sent += RESPONSE_BYTES;
        }
      }
    },
    answer: (question: string) => historyAnswer(history, question),
    read: async (of: SubjectName, range: HistoryRange) => {
      const begun = performance.now();
      const { steps } = await history.read(of, range);
      return { ms: performance.now() - begun, steps: steps.map(summed) };
    },
    list: async (of: readonly SubjectName[], range: HistoryRange) => {
      const begun = performance.now();
      const all = await history.readBriefly(of, range);
      return { ms: performance.now() - begun, lists: all.map((steps) => steps.map(summed)) };
    },
    /** The longest time in milliseconds in which nothing else could happen, since it was asked last. */
    blocked: async () => {
      const ms = delay.max / 1e6;
      delay.reset();
      return ms;
    },
    stop: async () => {
      await history.stop();
      await postgres.close();
    },
  };
}

export type YearNodeCalls = Omit<ReturnType<typeof yearNode>, 'answer'>;

/** What its parent sends: calls one after another, or the answer to a question. */
type Received =
  | { id: number; calls: readonly [name: keyof ReturnType<typeof yearNode>, args: unknown[]][] }
  | { answers: object; to: number };

const [, , options = '{}'] = process.argv;
const asked = new Map<number, (answers: object) => void>();
let questions = 0;
const node = yearNode(JSON.parse(options) as YearNodeOptions, (question) => {
  questions += 1;
  process.send?.({ question, to: questions });
  return new Promise((resolve) => asked.set(questions, resolve));
});
process.on('message', async (message: Received) => {
  if ('answers' in message) {
    asked.get(message.to)?.(message.answers);
    asked.delete(message.to);
    return;
  }
  const { id, calls } = message;
  try {
    let result: unknown;
    for (const [name, args] of calls) result = await (node[name] as (...given: unknown[]) => unknown)(...args);
    process.send?.({ id, result });
  } catch (error) {
    process.send?.({ id, error: (error as Error).stack });
  }
});
process.on('disconnect', () => process.exit());
