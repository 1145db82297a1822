import { appendFileSync, existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts';
import { OnlineAddressesFile } from '../../../src/gateway/endpoints/online-addresses-file.ts';
import type { OnlineEndpoint } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { NO_POLICY } from '../../../src/traffic-policy/engine.ts';
import { recordingLog, silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

let path: string;
beforeEach(() => {
  path = join(temporaryFolder(), 'online-addresses.jsonl');
});

async function start(log = silentLog) {
  const endpoints = new EndpointRegistry();
  const file = new OnlineAddressesFile(path, endpoints, log);
  await file.start();
  onTestFinished(() => file.stop());
  return { endpoints, file };
}

function endpoint(host: string, more: Partial<OnlineEndpoint> = {}): OnlineEndpoint {
  const owner = { credential: { id: 'cr_1' } };
  return {
    protocol: 'https',
    host,
    port: 443,
    internal: false,
    tls: null,
    policy: NO_POLICY,
    owner,
    ...more,
  } as OnlineEndpoint;
}

const written = () => (existsSync(path) ? readFileSync(path, 'utf8') : '');
const lines = () => written().split('\n').length - 1;
const expected = ({ lost }: EndpointRegistry) => lost.all().map(({ place }) => place);

it('the next gateway expects the agents of what was online when this one was killed', async () => {
  const { endpoints } = await start();
  endpoints.add(endpoint('a.localhost'));
  endpoints.add(endpoint('b.localhost', { protocol: 'tls' }));
  endpoints.add(endpoint('cloud.localhost', { isCloud: true }));
  await until(() => lines() === 2, 'the lines');
  appendFileSync(path, '{"place":"tls torn.loc');
  const next = await start();
  expect(next.endpoints.lost.all()).toMatchObject([
    { place: 'tls a.localhost', credentialId: 'cr_1', needsHandshake: false },
    { place: 'tls b.localhost', credentialId: 'cr_1', needsHandshake: true },
  ]);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

it('what is written after a torn line is read', async () => {
  appendFileSync(path, '{"place":"tls torn.loc');
  const { endpoints } = await start();
  endpoints.add(endpoint('a.localhost'));
  await until(() => written().includes('a.localhost'), 'the line');
  expect(expected((await start()).endpoints)).toEqual(['tls a.localhost']);
});

it('a session that flaps writes nothing', async () => {
  const { endpoints } = await start();
  const [a, b] = [endpoint('a.localhost'), endpoint('b.localhost')];
  endpoints.add(a);
  await until(() => lines() === 1, 'the line');
  for (let times = 0; times < 10; times++) {
    endpoints.remove(a, 'lost');
    endpoints.add(a);
  }
  endpoints.add(b);
  await until(() => written().includes('b.localhost'), 'the next line');
  expect(lines()).toBe(2);
});

it('has what is online when the gateway stops, and what has lost its agent right before', async () => {
  const { endpoints, file } = await start();
  const [a, b] = [endpoint('a.localhost'), endpoint('b.localhost')];
  for (const each of [a, b, endpoint('c.localhost')]) endpoints.add(each);
  endpoints.remove(a);
  endpoints.remove(b, 'lost');
  await file.stop();
  expect(expected((await start()).endpoints).sort()).toEqual(['tls b.localhost', 'tls c.localhost']);
});

it('a disk that takes nothing is logged, and stops nothing', async () => {
  path = join(path, 'missing', 'file');
  const { log, lines: logged } = recordingLog();
  const { endpoints } = await start(log);
  endpoints.add(endpoint('a.localhost'));
  await until(() => logged.length > 0, 'the line of the log');
  expect(logged[0]).toMatchObject({ msg: 'addresses that are online not recorded' });
});
