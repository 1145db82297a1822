import { expect, it, vi } from 'vitest';
import type {
  ConnectedEndpoint,
  EndpointEnd,
  EndpointRequest,
  RequestWatcher,
} from '../../../src/agent/connectors/connector.ts';
import type { GatewaySession } from '../../../src/agent/connectors/gateway-link.ts';
import { SpreadEndpoint } from '../../../src/agent/connectors/spread-endpoint.ts';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { upstreamAt } from '../../support/connectors.ts';
import { silentLog } from '../../support/silent-log.ts';

/** A session that binds what it is asked for when the test says so. */
class Session implements GatewaySession {
  readonly lost = new Promise<string>(() => {});
  readonly asked: EndpointRequest[] = [];
  readonly bound: Bound[] = [];
  answer: () => Promise<void> = async () => {};

  async open(request: EndpointRequest): Promise<ConnectedEndpoint> {
    this.asked.push(request);
    await this.answer();
    const endpoint = new Bound();
    this.bound.push(endpoint);
    return endpoint;
  }
  end(): void {}
  async close(): Promise<void> {}
}

class Bound implements ConnectedEndpoint {
  readonly url = 'https://camera.test:8443';
  isOpen = true;
  end: (end: EndpointEnd) => void = () => {};
  readonly ended = new Promise<EndpointEnd>((resolve) => {
    this.end = resolve;
  });
  readonly watchers = new Set<RequestWatcher>();

  async close(): Promise<void> {
    this.isOpen = false;
  }
  watchRequests(watcher: RequestWatcher): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

const LOST: EndpointEnd = { code: null, message: 'session ended' };

async function spread() {
  const [one, two] = [new Session(), new Session()];
  const online = new Set<GatewaySession>([one, two]);
  const request: EndpointRequest = { protocol: 'http', upstream: upstreamAt('http://127.0.0.1:9'), forwardsTo: 'x' };
  const first = (await one.open(request)) as Bound;
  const endpoint = new SpreadEndpoint(first, one, {
    ...{ request, clock: systemClock, log: silentLog },
    isOnline: (session) => online.has(session),
    inTurn: (bind) => bind(),
    onOver: () => {},
  });
  let end: EndpointEnd | null = null;
  void endpoint.ended.then((reason) => {
    end = reason;
  });
  return { one, two, first, endpoint, online, ended: () => end };
}

it('is online while it is in one session, and has the name there that the first gateway chose', async () => {
  const { two, first, endpoint, online, ended } = await spread();
  endpoint.bindIn(two);
  await vi.waitFor(() => expect(two.bound).toHaveLength(1));
  expect(two.asked[0]?.domain).toBe('camera.test');
  online.clear();
  first.end(LOST);
  await new Promise(setImmediate);
  expect(ended()).toBeNull();
  two.bound[0]?.end(LOST);
  await vi.waitFor(() => expect(ended()).toEqual(LOST));
});

it('is online when its first session is lost while the second one binds it', async () => {
  const { one, two, first, endpoint, online, ended } = await spread();
  let answer = () => {};
  two.answer = () =>
    new Promise<void>((resolve) => {
      answer = resolve;
    });
  endpoint.bindIn(two);
  online.delete(one);
  first.end(LOST);
  await new Promise(setImmediate);
  answer();
  await vi.waitFor(() => expect(two.bound).toHaveLength(1));
  await new Promise(setImmediate);
  expect(ended()).toBeNull();
});

it('is bound in a session that begins while an ended one leaves it to attempts elsewhere, and in theirs when they fail', async () => {
  const { one, two, first, endpoint, online, ended } = await spread();
  let refuse = () => {};
  two.answer = () =>
    new Promise<void>((_, reject) => {
      refuse = () => reject(new Error('not now'));
    });
  endpoint.bindIn(two);
  online.delete(one);
  first.end(LOST);
  await new Promise(setImmediate);
  const three = new Session();
  online.add(three);
  endpoint.bindIn(three);
  two.answer = async () => {};
  refuse();
  await vi.waitFor(() => expect([two.bound.length, three.bound.length]).toEqual([1, 1]));
  expect(ended()).toBeNull();
});

it('ends everywhere when a gateway ends it for a reason, and is not bound again', async () => {
  const { two, first, endpoint, ended } = await spread();
  endpoint.bindIn(two);
  await vi.waitFor(() => expect(two.bound).toHaveLength(1));
  const revoked = { code: 'ERR_NGROK_300', message: 'revoked' };
  first.end(revoked);
  await vi.waitFor(() => expect(ended()).toEqual(revoked));
  expect([two.bound[0]?.isOpen, two.asked.length]).toEqual([false, 1]);
});

it('waits for what is being bound when it is closed, so that nothing stays online unnoticed', async () => {
  const { two, first, endpoint } = await spread();
  let answer = () => {};
  two.answer = () =>
    new Promise<void>((resolve) => {
      answer = resolve;
    });
  endpoint.bindIn(two);
  const closed = endpoint.close();
  answer();
  await closed;
  expect([first.isOpen, two.bound[0]?.isOpen]).toEqual([false, false]);
});

it('reports requests of every session', async () => {
  const { two, first, endpoint } = await spread();
  const lines: string[] = [];
  let isOver = false;
  const onEnd = () => {
    isOver = true;
  };
  const stop = endpoint.watchRequests?.({ onLine: (line) => lines.push(line), onEnd });
  endpoint.bindIn(two);
  await vi.waitFor(() => expect(two.bound).toHaveLength(1));
  const [second] = two.bound;
  for (const [at, bound] of [first, second].entries()) for (const each of bound?.watchers ?? []) each.onLine(`${at}`);
  expect(lines).toEqual(['0', '1']);
  for (const each of first.watchers) each.onEnd();
  expect(isOver).toBe(false);
  stop?.();
  expect(second?.watchers.size).toBe(0);
});
