import { mkdirSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { AcmeAccountKey } from '../../src/gateway/certificates/acme/acme-account.ts';
import { openLocalCa } from '../../src/gateway/certificates/local-ca/local-ca.ts';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { silentLog } from '../support/silent-log.ts';

/** Does everything that a gateway writes, twice over, and tells what was answered. Argument: the data folder. */
const [, , dataDir = ''] = process.argv;
const folder = join(dataDir, 'gateway');
// Synchronous, so that all output before a power cut is about data on the disk.
const answer = (kind: string, value: string) => writeSync(1, `${JSON.stringify([kind, value])}\n`);

mkdirSync(folder, { recursive: true });
for (let start = 0; start < 2; start++) {
  answer('ca', (await openLocalCa(folder, silentLog)).caPem);
  const store = openGatewayStore({ dataDir, encryptionKey: null });
  const add = async (description: string) =>
    answer('row', (await store.database.write(() => issueApiKey(store, { description }))).row.id);
  await add('small');
  answer('account', await new AcmeAccountKey(join(folder, 'acme-account.key'), store.box).load());
  await add('larger than a page '.repeat(500));
  // Several share a commit.
  await Promise.all(['a', 'b', 'c'].map(add));
  await add('last');
  store.database.close();
}
