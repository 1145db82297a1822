import { expect, it, onTestFinished } from 'vitest';
import { type Gateway, startGateway } from '../../src/gateway/gateway.ts';
import type { OwnNamesChoice } from '../../src/settings/certificate-settings.ts';
import { closeOnce } from '../support/close-once.ts';
import { freePorts } from '../support/free-ports.ts';
import { NO_POSTGRES, PostgresServer } from '../support/postgres-server.ts';
import { unless } from '../support/requirements.ts';
import { silentLog } from '../support/silent-log.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');

/** @param ownNames null: not set */
async function start(
  ownNames: OwnNamesChoice | null,
  {
    databaseUrl,
    dataDir = temporaryFolder(),
    domain = 'gw.test',
  }: { databaseUrl?: string; dataDir?: string; domain?: string },
): Promise<Gateway> {
  const { first: port } = await freePorts(2);
  // Nobody listens there: orders fail, and are repeated.
  const account = { directoryUrl: 'https://127.0.0.1:1/', contactEmail: null, externalAccountBinding: null };
  const gateway = await startGateway({
    ...{ dataDir, domain, host: '127.0.0.1', encryptionKey: KEY, log: silentLog },
    ...{ httpPort: port, httpsPort: port + 1, sessionPort: null },
    ...(databaseUrl !== undefined && { databaseUrl, nodeAddress: `127.0.0.1:${port + 1}` }),
    acme: { ...account, trust: null, resolvers: null, ownNames: ownNames ?? 'none' },
    keepsOwnNames: ownNames === null,
  });
  const close = closeOnce(() => gateway.close());
  return { ...gateway, close };
}

const namesOf = ({ store }: Gateway) => store.ownDomains.managed().map(({ domain }) => domain);
const PUBLIC = ['api.gw.test', 'sign-in.gw.test'];

it(
  'a gateway whose settings differ from those of the others does not start, and changes nothing',
  unless(NO_POSTGRES),
  async () => {
    const server = await PostgresServer.start();
    onTestFinished(() => server.end());
    const place = { databaseUrl: server.url() };
    const first = await start('public', place);
    await expect(start('none', place)).rejects.toThrow(
      /^GATEWAY_ACME_OWN_NAMES is "none" here and "public" at the other gateways: set the same here/,
    );
    await expect(start('public', { ...place, domain: 'other.test' })).rejects.toThrow(
      /^GATEWAY_DOMAIN is "other.test" here and "gw.test" at the other gateways/,
    );
    // One that does not say takes what the others say.
    const second = await start(null, place);
    expect([namesOf(first), namesOf(second)]).toEqual([PUBLIC, PUBLIC]);
    await first.close();
    await second.close();
    const third = await start(null, place);
    expect(namesOf(third)).toEqual(PUBLIC);
    await third.close();
    expect(namesOf(await start('none', place))).toEqual([]);
  },
);

it('a gateway whose settings do not say any more which of its names have certificates keeps them', async () => {
  const dataDir = temporaryFolder();
  await (await start('public', { dataDir })).close();
  const unset = await start(null, { dataDir });
  expect(namesOf(unset)).toEqual(PUBLIC);
  await unset.close();
  expect(namesOf(await start('none', { dataDir }))).toEqual([]);
});
