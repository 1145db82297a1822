import { expect, it } from 'vitest';
import type { NodePlace } from '../../../src/gateway/edge/relays/other-nodes.ts';
import { ProbesElsewhere, probesText } from '../../../src/gateway/probes/probes-elsewhere.ts';
import type { Node } from '../../../src/gateway/store/shared/postgres.ts';
import { until } from '../../support/until.ts';

const URL = 'https://cam.example.com';
const node = (id: string, build = '2.0.0') => ({ id, build, address: `${id}:443` }) as Node;

it('what other gateways tell stays when they do not answer any more, and one that hangs keeps no other one waiting', async () => {
  const all = [node('here'), node('hung'), node('told'), node('older', '1.0.0')];
  const place = (id: string) => ({ id, host: id, port: 443 });
  const asked: [string, number][] = [];
  let at = Date.now() - 20_000;
  let isThere = true;
  const ask = ({ id }: NodePlace, _: string, details = '') => {
    asked.push([id, Number(details)]);
    if (id === 'hung') return new Promise<string>(() => {});
    if (!isThere) return Promise.reject(new Error('it is gone'));
    return Promise.resolve(
      probesText([{ url: URL, result: { stage: 'session', message: 'why', at, since: at - 5_000 } }], details),
    );
  };
  const elsewhere = new ProbesElsewhere({ all, self: 'here', place }, { ask });
  const online = new Set([URL]);
  elsewhere.learn(online);
  await until(() => elsewhere.at(URL) !== null, 'the answer');
  expect(elsewhere.at(URL)).toMatchObject({ stage: 'session', message: 'why' });
  const { since } = elsewhere.at(URL) ?? {};
  // What was told before is not told again.
  at = Date.now();
  elsewhere.learn(online);
  await until(() => (elsewhere.at(URL)?.at ?? 0) > at - 1_000, 'the next one');
  expect(elsewhere.at(URL)?.since).toBe(since);
  expect(asked.map(([id]) => id)).toEqual(['hung', 'told', 'told']);
  expect(asked[2]?.[1]).toBeLessThan(10_000);
  isThere = false;
  elsewhere.learn(online);
  await until(() => asked.length === 4, 'the question');
  expect(elsewhere.at(URL)).not.toBeNull();
  elsewhere.learn(new Set<string>());
  expect(elsewhere.at(URL)).toBeNull();
});
