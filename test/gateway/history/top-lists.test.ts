import { expect, it } from 'vitest';
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts';
import type { OnlineEndpoint } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { RequestFeed } from '../../../src/gateway/endpoints/request-feed.ts';
import { FrequentKeys, TopLists } from '../../../src/gateway/history/top-lists.ts';
import { SteeredClock } from '../../support/steered-clock.ts';

it('the most frequent keys are found among any number of others, in fixed memory', () => {
  const keys = new FrequentKeys(100);
  for (let n = 0; n < 50_000; n++) keys.add(n % 10 === 0 ? `/often-${n % 30}` : `/${n}`);
  const all = keys.all.sort((one, other) => other.requests - one.requests);
  expect(all).toHaveLength(100);
  for (const { key, requests, excess } of all.slice(0, 3)) {
    expect(key).toMatch(/^\/often/);
    // Never too low, and the error is known.
    expect(requests).toBeGreaterThanOrEqual(1_666);
    expect(requests - excess).toBeLessThanOrEqual(1_667);
  }
});

it('counts only at endpoints that somebody looks at, the latest sixteen, and forgets an hour', async () => {
  const clock = new SteeredClock();
  const endpoints = new EndpointRegistry();
  const feeds = new Map<string, RequestFeed>();
  let watched = 0;
  const atUrl = (url: string) => {
    const feed = feeds.get(url) ?? new RequestFeed();
    feeds.set(url, feed);
    const watchRequests: OnlineEndpoint['watchRequests'] = (reader) => {
      watched += 1;
      const queue = feed.watch(reader);
      const close = queue.close.bind(queue);
      queue.close = () => {
        watched -= 1;
        close();
      };
      // So that the test need not wait.
      queue.push = (report) => void reader.take(`${JSON.stringify(report)}\n`);
      return queue;
    };
    return [{ url, watchRequests } as OnlineEndpoint];
  };
  endpoints.atUrl = atUrl;
  const lists = new TopLists({ endpoints, clock });
  expect(watched).toBe(0);
  for (let n = 0; n < 20; n++) lists.read(`https://cam-${n}.example.com`);
  expect(watched).toBe(16);
  const url = 'https://cam-19.example.com';
  const report = { at: 0, ms: 1, method: 'GET', host: 'cam', client: '[2001:db8:1:2::3]:77', code: null, sent: null };
  const ask = (target: string) =>
    feeds.get(url)?.publish({ ...report, target, status: 200, by: 'upstream', rules: [] });
  ask('/early');
  for (let minutes = 0; minutes < 70; minutes++) {
    await clock.advance(60_000);
    lists.read(url);
  }
  ask(`/${'x'.repeat(1_000)}`);
  const { requests, paths, networks } = lists.read(url);
  expect(requests).toBe(1);
  expect(paths.map(({ key }) => key)).toEqual([`/${'x'.repeat(199)}`]);
  expect(networks.map(({ key }) => key)).toEqual(['2001:db8:1:0::/56']);
  // One that is bound again is followed as well.
  const [again] = atUrl(url);
  if (again !== undefined) endpoints.emit('added', again);
  await clock.advance(240_000);
  expect(watched).toBe(0);
  expect(endpoints.listenerCount('added')).toBe(0);
  lists.stop();
});
