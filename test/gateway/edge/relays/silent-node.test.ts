import { once } from 'node:events';
import { createServer, request as requestHttp } from 'node:http';
import { Agent, request } from 'node:https';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { EdgeServer } from '../../../../src/gateway/edge/edge-server.ts';
import type { NodePlace } from '../../../../src/gateway/edge/relays/other-nodes.ts';
import { RelayTickets } from '../../../../src/gateway/edge/relays/relay-tickets.ts';
import { Relays } from '../../../../src/gateway/edge/relays/relays.ts';
import { DirectEndpoint, Directory, NO_DATABASE, othersWith, TestEdge, withoutParts } from '../../../support/edge.ts';
import { edgeContext } from '../../../support/edge-context.ts';
import { FlakyProxy } from '../../../support/flaky-proxy.ts';
import { listening } from '../../../support/loopback.ts';
import { silentLog } from '../../../support/silent-log.ts';
import { until } from '../../../support/until.ts';

/** An upstream that takes so long is waited for. */
const SLOW_MS = 2_000;
/** Before that, clients are served by another node; after 1.3 s, unless the machine is busy. */
const LATE_MS = 8_000;
const WAYS = ['http', 'tls', 'inner'] as const;
/** The node that clients come to serves it itself. */
const OWN_NAME = 'own.localhost';

/** Tickets of an earlier version, which confirms no connections. */
class OldTickets extends RelayTickets {
  override redeem(...given: Parameters<RelayTickets['redeem']>) {
    const use = super.redeem(...given);
    return use && { ...use, confirms: false };
  }
}

/**
 * A node that clients come to, and two others that serve two names of one upstream; the first of them is reached through a
 * proxy.
 */
async function threeNodes({ Tickets = RelayTickets }: { Tickets?: typeof RelayTickets } = {}) {
  const edge = await TestEdge.start();
  onTestFinished(() => edge.close());
  const { ca } = edge;
  const requests: string[] = [];
  const upstreamOf = (id: string) =>
    createServer(async (req, res) => {
      requests.push(`${req.method} ${id}`);
      await text(req);
      const { pathname } = new URL(req.url ?? '', 'http://upstream');
      if (pathname === '/slow') await delay(SLOW_MS);
      if (pathname !== '/never') res.end(id);
    });
  const events: string[] = [];
  const edgeOf = async (id: string, owner: () => NodePlace | undefined, endpoints = new Directory()) => {
    const nodes = {
      ...othersWith(owner),
      withName: (host: string) => (host === OWN_NAME ? undefined : owner()),
      failed: (failed: string) => void events.push(`failed ${failed}`),
      answered: (answered: string) => void events.push(`answered ${answered}`),
    };
    const tickets =
      id === 'front' ? new RelayTickets(() => ['key'], id, Date.now) : new Tickets(() => ['key'], id, Date.now);
    const relays = new Relays({
      ...{
        tickets,
        nodes,
        commonName: 'api.localhost',
        authority: () => ca.caPem,
        isOurs: () => true,
        dial: NO_DATABASE,
        log: silentLog,
      },
    });
    const server = new EdgeServer(edgeContext({ endpoints }), { ...withoutParts(), ca, relays });
    onTestFinished(() => server.stop());
    return server.start();
  };
  const leg = async (id: string) => {
    const upstream = upstreamOf(id);
    const port = await listening(upstream);
    onTestFinished(() => void upstream.close().closeAllConnections());
    const endpoints = new Directory();
    for (const [host, protocol] of [
      ['plain.localhost', 'http'],
      ['web.localhost', 'https'],
    ] as const)
      endpoints.byHost.set(host, new DirectEndpoint(host, protocol, port, null));
    return (await edgeOf(id, () => undefined, endpoints)).httpsPort;
  };
  const link = await FlakyProxy.start(`127.0.0.1:${await leg('one')}`);
  onTestFinished(() => link.close());
  const two = { id: 'two', host: '127.0.0.1', port: await leg('two') };
  const one = { id: 'one', host: '127.0.0.1', port: Number(link.address.split(':')[1]) };
  const order = { places: [one, two] };
  const front = await edgeOf('front', () => {
    const [first, next] = order.places;
    return first && { ...first, next };
  });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  const ask = (way: (typeof WAYS)[number], method = 'GET', path = '/'): Promise<string> => {
    const began = performance.now();
    return new Promise((resolve, reject) => {
      const servername = way === 'inner' ? OWN_NAME : 'web.localhost';
      const to = { host: '127.0.0.1', method, path };
      const req =
        way === 'http'
          ? requestHttp({ ...to, port: front.httpPort, agent: false, headers: { host: 'plain.localhost' } })
          : request({
              ...{ ...to, port: front.httpsPort, servername, ca: ca.caPem, headers: { host: 'web.localhost' } },
              ...{ agent: way === 'inner' ? agent : false, checkServerIdentity: () => undefined },
            });
      req.on('error', reject);
      req.on('response', async (res) => {
        const body = await text(res);
        const tookMs = performance.now() - began;
        const late = tookMs < LATE_MS || path !== '/' ? '' : ` after ${tookMs} ms`;
        resolve(res.statusCode === 200 ? `${body}${late}` : `${res.statusCode}${late}`);
      });
      req.end(method === 'POST' ? 'body' : undefined);
    });
  };
  return { ask, link, requests, events, order, places: { one, two } };
}

it('requests that come while a node is stopped get their answers from another one, and are not done twice', async () => {
  const { ask, link, requests, events } = await threeNodes();
  link.hold();
  expect(await Promise.all(WAYS.map((way) => ask(way, 'POST')))).toEqual(['two', 'two', 'two']);
  expect(events).toContain('failed one');
  expect(events).not.toContain('answered one');
  link.release();
  await until(() => events.includes('answered one'), 'the node answers again');
  expect(await ask('http', 'POST')).toBe('one');
  expect(requests).toEqual(['POST two', 'POST two', 'POST two', 'POST one']);
});

it('requests for a node behind a link that passes one way are done elsewhere, and only there', async () => {
  const { ask, link, requests } = await threeNodes();
  // From the node.
  link.delay(10_000);
  expect(await Promise.all(WAYS.map((way) => ask(way, 'POST')))).toEqual(['two', 'two', 'two']);
  expect(requests).toEqual(['POST two', 'POST two', 'POST two']);
});

it('of requests on a connection to a node that stops, only those are repeated that do no harm', async () => {
  const { ask, link, order, places } = await threeNodes();
  expect(await ask('inner', 'POST')).toBe('one');
  link.silence();
  expect(await ask('inner', 'POST')).toBe('504');
  link.speak();
  await until(async () => (await ask('inner')) === 'one', 'the node again');
  link.silence();
  // As the cluster does, once the node has failed.
  const answer = ask('inner');
  order.places = [places.two, places.one];
  expect(await answer).toBe('two');
});

it('clients whose requests a node has taken before it stopped are told', async () => {
  const { ask, link, requests } = await threeNodes();
  const answers = Promise.allSettled([ask('http', 'POST', '/never'), ask('tls', 'POST', '/never')]);
  await until(() => requests.length === 2, 'the requests');
  link.silence();
  expect(await answers).toEqual([
    { status: 'fulfilled', value: '504' },
    { status: 'rejected', reason: expect.objectContaining({ code: 'ECONNRESET' }) },
  ]);
});

it('a slow upstream of a node is waited for', async () => {
  const { ask, requests } = await threeNodes();
  expect(await Promise.all(WAYS.map((way) => ask(way, 'POST', '/slow')))).toEqual(['one', 'one', 'one']);
  expect(requests).toEqual(['POST one', 'POST one', 'POST one']);
});

it('gateways of an earlier version, which confirm no connections, get them', async () => {
  const { ask, requests } = await threeNodes({ Tickets: OldTickets });
  expect(await Promise.all(WAYS.map((way) => ask(way, 'POST')))).toEqual(['one', 'one', 'one']);
  expect(requests).toEqual(['POST one', 'POST one', 'POST one']);
});

it('a node that alone serves a name is waited for', async () => {
  const { ask, link, order, places, requests } = await threeNodes();
  order.places = [places.one];
  link.hold();
  const answers = Promise.all([ask('http', 'POST', '/late'), ask('tls', 'POST', '/late')]);
  await delay(SLOW_MS);
  link.release();
  expect(await answers).toEqual(['one', 'one']);
  expect(requests).toEqual(['POST one', 'POST one']);
});

it('what a node finds when it has stood still is not done any more', async () => {
  const { places, requests } = await threeNodes();
  const ends = { clientIp: '127.0.0.1', clientPort: 1, serverIp: '127.0.0.1', serverPort: 2 };
  const send = async (blockedMs: number) => {
    const link = connect(places.two.port, '127.0.0.1');
    link.write(new RelayTickets(() => ['key'], 'front', Date.now).issue(ends, 'two', { port: 'http', confirms: true }));
    await once(link, 'data');
    const closed = once(link, 'close').catch((error: NodeJS.ErrnoException) => error.code);
    link.on('data', () => link.end());
    link.write('POST / HTTP/1.1\r\nhost: plain.localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n');
    for (const end = performance.now() + blockedMs; performance.now() < end; );
    return closed;
  };
  expect(await send(1_500)).toBe('ECONNRESET');
  expect(requests).toEqual([]);
  await send(0);
  expect(requests).toEqual(['POST two']);
});
